// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/check_numerics.h"

#include <ATen/ATen.h>

#include <cmath>

#include "tensorpack/callbacks/first_program.h"
#include "tensorpack/callbacks/watched_scalars.h"
#include "tensorpack/session/step_again.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

bool is_finite(const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  // The sum of finite numbers may overflow: then each is looked at.
  return std::isfinite(tensor.sum().item<double>()) || tensor.isfinite().all().item<bool>();
}

std::string describe_not_finite(const NotFinite& found) {
  if (!found.origin) {
    return fmt::format("'{}' has {} before the step: look at the data, or at what was restored.",
                       found.name, found.what);
  }
  std::string text =
      fmt::format("{} is the first to give {}", found.origin->describe(), found.what);
  if (found.infinity)
    text += fmt::format(", of infinities that {} gave", found.infinity->describe());
  return text + ".";
}

}  // namespace

CheckNumerics::CheckNumerics(CheckNumericsOptions options) : options_(std::move(options)) {
  set_chief_only(false);
}

void CheckNumerics::before_train() {
  watched_ = watched_scalars(trainer(), options_.tensor, "CheckNumerics");
  if (const auto variable = bad_variable()) {
    throw make_error("CheckNumerics",
                     "the variable '{}' is not finite before training. Look at its initializer, or "
                     "at the checkpoint.",
                     *variable);
  }
}

std::optional<std::string> CheckNumerics::bad_variable() const {
  const auto lock = graph().lock_variables();
  for (const Variable* variable : graph().variables().trainable()) {
    if (!is_finite(variable->tensor)) return variable->name;
  }
  return std::nullopt;
}

RunArgs CheckNumerics::before_run(RunContext& context) {
  before_ = {};
  const Op op = first_program(context.op());
  if (!op) return {};
  {
    const auto lock = graph().lock_variables();
    for (const Variable& variable : graph().variables().all()) before_.save(variable.tensor);
    if (op.state().generator.defined()) before_.save(op.state().generator);
  }
  RunArgs args;
  for (const TensorSpec& input : op.inputs()) args.fetches.push_back(input.name);
  fetched_ = scalars_of(op, watched_);
  args.fetches.insert(args.fetches.end(), fetched_.begin(), fetched_.end());
  return args;
}

void CheckNumerics::after_run(RunContext& context, const FetchedValues& values) {
  const Op op = first_program(context.op());
  if (!op) return;
  const size_t inputs = values.size() - fetched_.size();
  inputs_.assign(values.begin(), values.begin() + static_cast<ptrdiff_t>(inputs));
  for (size_t i = 0; i < fetched_.size(); ++i) {
    const double value = values[inputs + i].item<double>();
    if (!std::isfinite(value)) {
      fail(fmt::format("'{}' is {}", fetched_[i], std::isnan(value) ? "NaN" : "infinite"), op);
    }
  }
  if (const auto variable = bad_variable()) {
    fail(fmt::format("the variable '{}' is not finite", *variable), op);
  }
}

void CheckNumerics::fail(const std::string& what, const Op& op) {
  {
    const auto lock = graph().lock_variables();
    before_.restore();
  }
  for (at::Tensor& input : inputs_) input = input.to(op.device());
  std::string reason;
  try {
    const auto found = find_not_finite(trainer().sess(), op, inputs_);
    reason = found ? describe_not_finite(*found)
                   : "Run again, the step of the first tower gives finite numbers: it came from "
                     "another tower's batch, or from numbers that differ between runs.";
  } catch (const std::exception& error) {
    reason = fmt::format("The step could not be run again: {}", tensorpack::describe(error));
  }
  throw make_error("CheckNumerics", "{} at global_step {}: {}", what, global_step(), reason);
}

}  // namespace tensorpack
