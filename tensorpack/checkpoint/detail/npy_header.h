// SPDX-License-Identifier: Apache-2.0
// The header of NumPy's npy format.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensorpack/checkpoint/detail/malformed.h"

namespace tensorpack::detail {

struct NpyHeader {
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<int64_t> shape = {};
  /// The first index runs fastest.
  bool fortran_order = false;
  bool big_endian = false;
};

/// NumPy's name of a type, or nullptr if it has none.
const char* npy_dtype_name(at::ScalarType dtype);

/// Padded to a multiple of 64 bytes.
std::string format_npy_header(const NpyHeader& header);

/// Takes the header off the front of `bytes`. Throws Malformed, also unless the elements take
/// exactly the bytes that are left.
NpyHeader take_npy_header(std::string_view& bytes);

}  // namespace tensorpack::detail
