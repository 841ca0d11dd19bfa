// SPDX-License-Identifier: Apache-2.0
// A recorded program apart from the process that recorded it: what an exported file holds.
//
// Note [Exported programs]
// Operators are called by the names of their schemas and take their arguments by name, so that a
// file means the same in another process and, where the schemas agree, with another libtorch. What
// follows from the batch size is an Extent. Programs are recorded on the CPU, below autograd: that
// has the operators which every device has.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// An integer that may follow from the batch size: slope * batch / unit + offset, with the unit of
/// the program.
struct Extent {
  int64_t slope = 0;
  int64_t offset = 0;

  bool is_fixed() const { return slope == 0; }
  bool operator==(const Extent& other) const = default;
};

/// Index into ExportedProgram::values; kNoExportedValue for an undefined tensor.
using ExportedId = int32_t;
inline constexpr ExportedId kNoExportedValue = -1;

/// The device the program runs on.
struct DeviceOfProgram {
  bool operator==(const DeviceOfProgram& other) const = default;
};
/// A tensor.
struct ValueArgument {
  ExportedId id = kNoExportedValue;
  bool operator==(const ValueArgument& other) const = default;
};
/// A list of tensors.
struct ValuesArgument {
  std::vector<ExportedId> ids = {};
  bool operator==(const ValuesArgument& other) const = default;
};

/// What an operator is given; std::monostate stands for None.
using ExportedArgument = std::variant<std::monostate, bool, Extent, double, std::string,
                                      std::vector<bool>, std::vector<Extent>, std::vector<double>,
                                      DeviceOfProgram, ValueArgument, ValuesArgument>;

struct ExportedResult {
  std::vector<ExportedId> ids = {};
  bool is_list = false;
};

struct ExportedNode {
  std::string op = {};     ///< "aten::add.Tensor"
  std::string layer = {};  ///< the scope of variables it was called in
  bool grad_mode = true;   ///< as it was at the call: some kernels look at it
  /// By the names of the schema; those that have their default are left out.
  std::map<std::string, ExportedArgument> arguments = {};
  std::vector<ExportedResult> results = {};
};

struct ExportedValue {
  c10::ScalarType dtype = c10::kFloat;
  std::vector<Extent> shape = {};
};

/// A tensor of the file, or a number that an operator took in the place of a tensor.
struct ExportedConstant {
  ExportedId id = kNoExportedValue;
  std::string name = {};   ///< of a tensor
  at::Tensor tensor = {};  ///< undefined for a number
  std::variant<bool, Extent, double> number = false;
};

struct ExportedInput {
  TensorSpec spec = {};  ///< -1 is the batch size
  ExportedId id = kNoExportedValue;
};

struct ExportedOutput {
  std::string name = {};
  ExportedId id = kNoExportedValue;
};

/// Nodes are in the order in which they run.
struct ExportedProgram {
  /// Batch sizes are multiples of it if a slope asks for that.
  int64_t unit = 1;
  std::vector<ExportedInput> inputs = {};
  std::vector<ExportedOutput> outputs = {};
  std::vector<ExportedValue> values = {};
  std::vector<ExportedConstant> constants = {};
  std::vector<ExportedNode> nodes = {};
};

/// "aten::convolution in layer 'conv0'".
std::string describe(const ExportedNode& node);

/// "batch", "2 batch + 1", "64".
std::string describe(const Extent& extent, int64_t unit);

/// "[batch, 64]".
std::string describe(const std::vector<Extent>& shape, int64_t unit);

/// What the extent is for a batch of this size; throws an Error where the size is no multiple of
/// the unit and would have to be.
int64_t evaluate(const Extent& extent, int64_t batch, int64_t unit);

}  // namespace tensorpack
