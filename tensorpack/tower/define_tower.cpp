// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/define_tower.h"

#include <ATen/core/grad_mode.h>

#include <optional>
#include <utility>

#include "tensorpack/tower/detail/enclosing_scope.h"

namespace tensorpack {
namespace {

// Towers draw random numbers of their own; a prediction in between changes nothing of a training.
std::string random_stream_of(const TowerOptions& tower) {
  if (!tower.is_training) return "prediction";
  return tower.index == 0 ? "main" : "tower" + std::to_string(tower.index);
}

}  // namespace

TowerHandle define_tower(Graph& graph, TowerOptions options, TowerDefinition definition) {
  definition.function.check_arity(definition.inputs);
  const Op op = graph.define({
      .name = definition.op_name.empty() ? options.name : definition.op_name,
      .inputs = std::move(definition.inputs),
      .body =
          [&graph, options, scope = EnclosingScope(), function = std::move(definition.function),
           body = std::move(definition.body)](const std::vector<at::Tensor>& inputs) {
            std::optional<at::NoGradGuard> no_grad;
            if (!options.is_training) no_grad.emplace();
            TowerContext tower(graph, options);
            tower.set_outputs(scope.call([&] { return function(inputs); }));
            if (body) body(tower);
            return tower.call().named_tensors();
          },
      .feeder = std::move(definition.feeder),
      .device = options.device,
      .random_stream = random_stream_of(options),
      .tower = options.index,
  });
  return TowerHandle(graph, options.name, options.is_training, op, options.variable_prefix);
}

}  // namespace tensorpack
