// SPDX-License-Identifier: Apache-2.0
// An exported program, without its tensors, as a JSON text.
#pragma once

#include <string>
#include <string_view>

#include "tensorpack/export/exported_program.h"

namespace tensorpack::detail {

/// Everything but the contents of the tensors. Of these it says name, type, shape, the order of
/// dimensions in memory and checksum.
std::string format_program(const ExportedProgram& program);

/// What a program says of a tensor of its file.
struct TensorRecord {
  std::string name = {};
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> shape = {};
  /// The dimensions from the slowest to the fastest.
  std::vector<int64_t> order = {};
  uint64_t checksum = 0;
};

struct ParsedProgram {
  ExportedProgram program = {};                     ///< its constants have no tensors yet
  std::map<ExportedId, TensorRecord> tensors = {};  ///< of the constants that will have one
};

/// Reads such a text, which anybody may have written. Every value has one maker and is made before
/// it is used, and indices are in range. Throws Malformed.
ParsedProgram parse_program(std::string_view text);

/// The dimensions of a dense tensor from the slowest to the fastest; 0, 1, 2 ... for others.
std::vector<int64_t> memory_order(const at::Tensor& tensor);

/// A copy whose dimensions lie in this order in memory.
at::Tensor in_memory_order(const at::Tensor& tensor, const std::vector<int64_t>& order);

/// Of the elements, in the order of the indices.
uint64_t checksum_of(const at::Tensor& tensor);

}  // namespace tensorpack::detail
