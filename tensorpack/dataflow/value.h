// SPDX-License-Identifier: Apache-2.0
// Plain values as components of datapoints: texts and other bytes are tensors of uint8 in one
// dimension, numbers are scalars, and what differs in length from datapoint to datapoint is a
// tensor of its own shape each time.
//
//   co_yield datapoint(bytes(jpeg), number(label), bytes("cat.jpg"));
//   std::string name(bytes_view(point[2]));
#pragma once

#include <string_view>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// A tensor of these bytes, which are copied.
at::Tensor bytes(std::string_view data);

/// The bytes of such a tensor, which must outlive the view. Throws Error if it is another one.
std::string_view bytes_view(const at::Tensor& tensor);

/// A scalar of type int64, double or bool.
at::Tensor number(int64_t value);
at::Tensor number(double value);
at::Tensor number(bool value);
template <std::integral T>
at::Tensor number(T value) {
  return number(static_cast<int64_t>(value));
}

}  // namespace tensorpack
