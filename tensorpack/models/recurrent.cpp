// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/recurrent.h"

#include <ATen/ATen.h>

#include <cmath>
#include <vector>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// The options with their defaults, and the weights in the order libtorch wants them.
struct Cell {
  bool has_bias, bidirectional, batch_first;
  int64_t layers;
  double dropout;
  std::vector<at::Tensor> weights;
  at::Tensor hidden, cell;
};

Cell prepare(const char* layer, const at::Tensor& input, RecurrentOptions call_options,
             int64_t gates) {
  const RecurrentOptions options = with_arg_scope(std::move(call_options));
  const std::string where = detail::layer_place(layer);
  detail::check_rank(layer, input, {3}, "[T, N, features], or [N, T, features] with .batch_first");
  const int64_t units = options.units.value_or(0);
  Cell cell{.has_bias = options.use_bias.value_or(true),
            .bidirectional = options.bidirectional.value_or(false),
            .batch_first = options.batch_first.value_or(false),
            .layers = options.layers.value_or(1),
            .dropout = options.dropout.value_or(0),
            .weights = {},
            .hidden = {},
            .cell = {}};
  TP_CHECK(units > 0 && cell.layers > 0, where, "units {} and layers {} must be 1 or more.", units,
           cell.layers);
  TP_CHECK(cell.dropout >= 0 && cell.dropout < 1, where,
           "the dropout is {}. It is the share that is dropped, in [0, 1).", cell.dropout);
  const double bound = 1 / std::sqrt(static_cast<double>(units));
  const Initializer initializer = options.init.value_or(init::uniform(-bound, bound));
  const int64_t directions = cell.bidirectional ? 2 : 1;
  for (int64_t k = 0; k < cell.layers; ++k) {
    const int64_t features = k == 0 ? input.size(2) : units * directions;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const std::string suffix = fmt::format("_l{}{}", k, direction == 1 ? "_reverse" : "");
      auto weight = [&](const char* name, Shape shape) {
        cell.weights.push_back(get_variable(name + suffix, shape, initializer));
      };
      weight("weight_ih", {gates * units, features});
      weight("weight_hh", {gates * units, units});
      if (!cell.has_bias) continue;
      weight("bias_ih", {gates * units});
      weight("bias_hh", {gates * units});
    }
  }
  const RecurrentState start = options.start.value_or(RecurrentState{});
  auto state_or_zeros = [&](const at::Tensor& state) {
    if (state.defined()) return state;
    return at::zeros({cell.layers * directions, input.size(cell.batch_first ? 0 : 1), units},
                     input.options());
  };
  cell.hidden = state_or_zeros(start.hidden);
  cell.cell = state_or_zeros(start.cell);
  return cell;
}

}  // namespace

RecurrentOutput LSTM(const std::string& name, const at::Tensor& input, RecurrentOptions options) {
  RecurrentOutput result;
  result.output = run_layer("LSTM", name, input, [&] {
    const Cell cell = prepare("LSTM", input, std::move(options), 4);
    auto [output, hidden, state] =
        at::lstm(input, {cell.hidden, cell.cell}, cell.weights, cell.has_bias, cell.layers,
                 cell.dropout, is_training(), cell.bidirectional, cell.batch_first);
    result.state = {.hidden = hidden, .cell = state};
    return output;
  });
  return result;
}

RecurrentOutput GRU(const std::string& name, const at::Tensor& input, RecurrentOptions options) {
  RecurrentOutput result;
  result.output = run_layer("GRU", name, input, [&] {
    const Cell cell = prepare("GRU", input, std::move(options), 3);
    auto [output, hidden] =
        at::gru(input, cell.hidden, cell.weights, cell.has_bias, cell.layers, cell.dropout,
                is_training(), cell.bidirectional, cell.batch_first);
    result.state = {.hidden = hidden};
    return output;
  });
  return result;
}

}  // namespace tensorpack
