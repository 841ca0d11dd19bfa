// SPDX-License-Identifier: Apache-2.0
// Who uses, and who overwrites, the values of an exported program.
#pragma once

#include <vector>

#include "tensorpack/export/exported_program.h"

namespace tensorpack::detail {

template <typename Visit>
void for_each_argument(const ExportedNode& node, Visit visit) {
  for (const auto& [name, argument] : node.arguments) {
    if (const auto* value = std::get_if<ValueArgument>(&argument)) visit(value->id);
    if (const auto* values = std::get_if<ValuesArgument>(&argument)) {
      for (ExportedId id : values->ids) {
        if (id != kNoExportedValue) visit(id);
      }
    }
  }
}

template <typename Visit>
void for_each_result(const ExportedNode& node, Visit visit) {
  for (const ExportedResult& result : node.results) {
    for (ExportedId id : result.ids) {
      if (id != kNoExportedValue) visit(id);
    }
  }
}

/// Which values share memory. A file may give a value two meanings, one after the other: they count
/// as one memory.
class SharedMemory {
 public:
  explicit SharedMemory(size_t values);
  void join(ExportedId a, ExportedId b);
  /// The value that stands for all of one memory.
  ExportedId of(ExportedId id) const;

 private:
  std::vector<ExportedId> next_;  // by value: another of the same memory, or itself
};

/// What the schemas of a program's operators say about memory. An operator that is not known here
/// is taken to read its arguments and to make its results.
class ProgramUses {
 public:
  explicit ProgramUses(const ExportedProgram& program);

  /// By how many arguments and outputs a value is used.
  int64_t count(ExportedId id) const { return counts_[id]; }
  /// Whether the memory of a value may be written after it was made.
  bool is_written(ExportedId id) const { return is_written_[possible_.of(id)] != 0; }
  /// Throws an Error that names the node if one writes to memory which is read later by another
  /// name: a program of values without memory cannot say that.
  void check_writes(const ExportedProgram& program) const;

 private:
  struct Node {
    std::vector<ExportedId> written = {};
  };

  std::vector<int64_t> counts_;   // by value
  SharedMemory declared_;         // by the schemas
  SharedMemory possible_;         // by what the operators do
  std::vector<char> is_written_;  // by possible memory
  std::vector<Node> nodes_;
};

}  // namespace tensorpack::detail
