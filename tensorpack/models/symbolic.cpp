// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/symbolic.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor prediction_incorrect(const at::Tensor& logits, const at::Tensor& label, int64_t topk) {
  TP_CHECK(logits.dim() == 2 && label.dim() == 1 && logits.size(0) == label.size(0),
           "prediction_incorrect", "logits [{}] and label [{}] must be [N, classes] and [N].",
           fmt::join(logits.sizes(), ", "), fmt::join(label.sizes(), ", "));
  TP_CHECK(topk > 0 && topk <= logits.size(1), "prediction_incorrect",
           "topk is {} for {} classes. Pass 1 or more, and no more than there are classes.", topk,
           logits.size(1));
  const at::Tensor best =
      topk == 1 ? logits.argmax(1, /*keepdim=*/true) : std::get<1>(logits.topk(topk, 1));
  return best.ne(label.unsqueeze(1)).all(1).to(at::kFloat);
}

at::Tensor accuracy(const at::Tensor& logits, const at::Tensor& label, int64_t topk) {
  return 1 - prediction_incorrect(logits, label, topk).mean();
}

at::Tensor rms(const at::Tensor& x) { return x.square().mean().sqrt(); }

at::Tensor huber_loss(const at::Tensor& x, double delta) {
  TP_CHECK(delta > 0, "huber_loss", "delta is {}. It must be above 0.", delta);
  const at::Tensor size = x.abs();
  return at::where(size <= delta, 0.5 * x.square(), delta * (size - 0.5 * delta));
}

}  // namespace tensorpack
