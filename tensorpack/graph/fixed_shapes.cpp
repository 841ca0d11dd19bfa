// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/fixed_shapes.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
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

// libtorch 1.13 makes a tensor of the number, and of that an index.
at::Tensor repeat_interleave(const at::Tensor& self, int64_t repeats, c10::optional<int64_t> dim,
                             c10::optional<int64_t> output_size) {
  const c10::impl::ExcludeDispatchKeyGuard off(kKey);
  if (repeats < 0) return at::repeat_interleave(self, repeats, dim, output_size);  // an error
  const at::Tensor whole = dim && self.dim() > 0 ? self : self.flatten();
  const int64_t along = c10::maybe_wrap_dim(dim.value_or(0), whole.dim());
  std::vector<int64_t> sizes = whole.sizes().vec();
  sizes.insert(sizes.begin() + along + 1, repeats);
  const at::Tensor copies = whole.unsqueeze(along + 1).expand(sizes);
  return copies.clone(at::MemoryFormat::Contiguous).flatten(along, along + 1);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("cross_entropy_loss", cross_entropy_loss);
  library.impl("repeat_interleave.self_int", repeat_interleave);
}

struct FixedShapes::Guards {
  c10::impl::IncludeDispatchKeyGuard on{kKey};
};

FixedShapes::FixedShapes() : guards_(std::make_unique<Guards>()) {}

FixedShapes::~FixedShapes() = default;

}  // namespace tensorpack
