// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/fixed_shapes.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace tensorpack {
namespace {

// Above autograd, and free: libtorch registers nothing on it.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

// What the losses of a mean weigh together.
at::Tensor total_weight(const at::Tensor& target, const c10::optional<at::Tensor>& weight,
                        int64_t ignore_index) {
  const at::Tensor is_ignored = target == ignore_index;
  if (!weight || !weight->defined()) return is_ignored.logical_not().sum();
  const at::Tensor of_rows = weight->gather(0, target.masked_fill(is_ignored, 0).flatten());
  return of_rows.masked_fill(is_ignored.flatten(), 0).sum();
}

at::Tensor cross_entropy_loss(const at::Tensor& logits, const at::Tensor& target,
                              const c10::optional<at::Tensor>& weight, int64_t reduction,
                              int64_t ignore_index, double label_smoothing) {
  const c10::impl::ExcludeDispatchKeyGuard off(kKey);
  const bool has_probabilities = logits.sizes() == target.sizes();
  if (reduction != at::Reduction::Mean || label_smoothing == 0 || has_probabilities) {
    return at::cross_entropy_loss(logits, target, weight, reduction, ignore_index, label_smoothing);
  }
  const at::Tensor losses = at::cross_entropy_loss(logits, target, weight, at::Reduction::None,
                                                   ignore_index, label_smoothing);
  const c10::ScalarType type = losses.scalar_type();
  const at::Tensor sum = losses.sum(at::toOpMathType(type));
  return (sum / total_weight(target, weight, ignore_index)).to(type);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("cross_entropy_loss", cross_entropy_loss);
}

struct FixedShapes::Guards {
  c10::impl::IncludeDispatchKeyGuard on{kKey};
};

FixedShapes::FixedShapes() : guards_(std::make_unique<Guards>()) {}

FixedShapes::~FixedShapes() = default;

}  // namespace tensorpack
