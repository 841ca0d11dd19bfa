// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/watched_scalars.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

bool is_scalar_of(const Op& op, const std::string& name) {
  const auto found = op.outputs().find(name);
  return found != op.outputs().end() && found->second.shape.empty();
}

// A trainer with its own run_step() may run any op.
std::vector<Op> ops_of(TrainerBase& trainer) {
  return trainer.train_op() ? std::vector{trainer.train_op()} : trainer.graph().ops();
}

}  // namespace

std::vector<std::string> watched_scalars(TrainerBase& trainer, const std::string& asked,
                                         std::string_view where) {
  std::vector<std::string> names = asked.empty() ? trainer.cost_names() : std::vector{asked};
  if (asked.empty() && trainer.variables().trainable().empty())
    return names;  // no cost is expected
  const std::vector<Op> ops = ops_of(trainer);
  for (const std::string& name : names) {
    if (std::ranges::any_of(ops, [&](const Op& op) { return is_scalar_of(op, name); })) continue;
    std::set<std::string> known;
    for (const Op& op : ops) {
      for (const auto& [output, spec] : op.outputs()) {
        if (spec.shape.empty()) known.insert(output);
      }
    }
    logging::warning(
        "[{0}] nobody looks whether the cost is finite: no step gives a scalar '{1}'. {2} Pass its "
        "name, {0}({{.tensor = ...}}), or override cost_names() of the trainer.",
        where, name, did_you_mean(name, {known.begin(), known.end()}));
  }
  return names;
}

std::vector<std::string> scalars_of(const Op& op, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  std::ranges::copy_if(names, std::back_inserter(found),
                       [&](const std::string& name) { return is_scalar_of(op, name); });
  return found;
}

}  // namespace tensorpack
