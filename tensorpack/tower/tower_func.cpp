// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_func.h"

#include <optional>

#include "tensorpack/tower/precision.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

void TowerFunc::check_arity(const std::vector<TensorSpec>& inputs) const {
  TP_CHECK(function_ != nullptr, "tower function", "it is empty. Give the model a function.");
  if (arity_ == kAnyArity || static_cast<size_t>(arity_) == inputs.size()) return;
  std::vector<std::string> names;
  for (const TensorSpec& spec : inputs) names.push_back(spec.name);
  throw make_error("tower function",
                   "it takes {}, the input signature has {} ({}). Make them agree: one "
                   "parameter per input.",
                   counted(arity_, "tensor"), inputs.size(), join(names, ", "));
}

std::vector<at::Tensor> TowerFunc::operator()(const std::vector<at::Tensor>& inputs) const {
  TP_CHECK(TowerContext::current() != nullptr, "tower function",
           "it is called outside a TowerContext. Open one: TowerContext ctx(graph).");
  TP_ASSERT(function_ != nullptr);
  TP_CHECK(arity_ == kAnyArity || inputs.size() == static_cast<size_t>(arity_), "tower function",
           "it takes {} and was called with {}. Pass one per input.", counted(arity_, "tensor"),
           inputs.size());
  // Float32 leaves alone what the caller or the function itself has set.
  std::optional<MixedPrecision> casts;
  const Precision precision = TowerPrecision::current();
  if (precision == Precision::kBFloat16 || precision == Precision::kFloat16) {
    casts.emplace(precision);
  }
  return function_(inputs);
}

}  // namespace tensorpack
