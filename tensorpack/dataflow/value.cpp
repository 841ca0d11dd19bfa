// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/value.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstring>

#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor bytes(std::string_view data) {
  at::Tensor tensor = at::empty({std::ssize(data)}, at::kByte);
  if (!data.empty()) std::memcpy(tensor.data_ptr(), data.data(), data.size());
  return tensor;
}

std::string_view bytes_view(const at::Tensor& tensor) {
  TP_CHECK(tensor.defined(), "bytes_view", "the tensor is undefined. Give it a value.");
  TP_CHECK(tensor.scalar_type() == at::kByte && tensor.dim() == 1 && tensor.is_contiguous() &&
               tensor.device().is_cpu(),
           "bytes_view",
           "a tensor {} [{}] is no sequence of bytes: those are contiguous, of type Byte, in one "
           "dimension, on the CPU. Make them with bytes().",
           c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  return {static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()};
}

at::Tensor number(int64_t value) { return at::scalar_tensor(value, at::kLong); }
at::Tensor number(double value) { return at::scalar_tensor(value, at::kDouble); }
at::Tensor number(bool value) { return at::scalar_tensor(value, at::kBool); }

}  // namespace tensorpack
