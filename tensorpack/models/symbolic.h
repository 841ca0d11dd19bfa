// SPDX-License-Identifier: Apache-2.0
// Small functions that models keep writing.
#pragma once

#include <string>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// 1 for every row of `logits` [N, classes] whose `topk` largest do not include the label, else 0.
at::Tensor prediction_incorrect(const at::Tensor& logits, const at::Tensor& label,
                                int64_t topk = 1);

/// The share of rows whose `topk` largest logits include the label.
at::Tensor accuracy(const at::Tensor& logits, const at::Tensor& label, int64_t topk = 1);

/// As torch::one_hot(), which reads the labels on the host and therefore cannot be recorded: int64
/// of shape [..., classes]. A label outside 0..classes-1 gives a row of zeros. An object, so that a
/// call without a namespace does not find at::one_hot() beside it, as tensors would have it.
struct OneHot {
  at::Tensor operator()(const at::Tensor& labels, int64_t classes) const;
};
inline constexpr OneHot one_hot;

/// The sum, and the mean, of the elements of `x` where `mask` is true, in a fixed shape: what
/// x[mask].sum() and x[mask].mean() would give. The mean of nothing is 0. The mask is as x, or
/// broadcast to it.
at::Tensor masked_sum(const at::Tensor& x, const at::Tensor& mask);
at::Tensor masked_mean(const at::Tensor& x, const at::Tensor& mask);

/// x with `value` where `mask` is true: what x[mask] = value would make of a copy.
at::Tensor masked_assign(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& value);

/// The root of the mean of squares.
at::Tensor rms(const at::Tensor& x);

/// Elementwise: x^2 / 2 up to `delta`, delta * (|x| - delta / 2) beyond.
at::Tensor huber_loss(const at::Tensor& x, double delta = 1);

/// Logs the shape, mean, root mean square and first 20 values of `x` in every run, under `message`
/// or the name of the tensor, and returns it. For debugging: on a GPU it waits for the value.
at::Tensor print_stat(const at::Tensor& x, const std::string& message = "");

}  // namespace tensorpack
