// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/padding.h"

#include <algorithm>

namespace tensorpack::detail {

std::pair<int64_t, int64_t> same_padding(int64_t size, int64_t kernel, int64_t stride,
                                         int64_t dilation) {
  const int64_t outputs = (size + stride - 1) / stride;
  const int64_t reach = (kernel - 1) * dilation + 1;
  const int64_t total = std::max<int64_t>((outputs - 1) * stride + reach - size, 0);
  return {total / 2, total - total / 2};
}

}  // namespace tensorpack::detail
