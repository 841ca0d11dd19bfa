// SPDX-License-Identifier: Apache-2.0
// Datapoints as bytes.
//
//   header     "TPDP", version (u8, 1), three zero bytes, number of components (u32), zero (u32)
//   component  type (u8), dimensions (u8), six zero bytes, sizes (i64 each), then the values, which
//              begin and end at multiples of 16 bytes from the beginning
//
// All numbers are little-endian. Types have the numbers of c10::ScalarType, which libtorch never
// changes.
#pragma once

#include <string>
#include <string_view>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

std::string serialize(const DataPoint& point);

/// How many bytes serialize() makes.
size_t serialized_size(const DataPoint& point);

/// Writes what serialize() gives to `to`, which has room for serialized_size() bytes.
void serialize_into(const DataPoint& point, char* to);

/// Reads a datapoint back. Throws Error, which begins with `where` and names the offset, unless
/// every byte is as serialize() makes it.
DataPoint deserialize(std::string_view bytes, std::string_view where = "deserialize");

/// The same without a copy: the tensors share the memory of `bytes`, a tensor of unsigned bytes.
DataPoint deserialize(const at::Tensor& bytes, std::string_view where = "deserialize");

}  // namespace tensorpack
