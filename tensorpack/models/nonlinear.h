// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

struct PReLUOptions {
  std::optional<double> init = {};  ///< 0.001: first value of `alpha`

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(init);
  }
};

/// x where it is positive, alpha * x elsewhere. Variable `alpha`, one number.
at::Tensor PReLU(const std::string& name, const at::Tensor& input, PReLUOptions options = {});

/// The largest of every `units` neighbouring channels of [N, C] or [N, C, H, W].
at::Tensor Maxout(const std::string& name, const at::Tensor& input, int64_t units);

/// The input, then the tensors, joined along a dimension.
at::Tensor ConcatWith(const std::string& name, const at::Tensor& input,
                      std::vector<at::Tensor> tensors, int64_t dim);

}  // namespace tensorpack
