// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/detail/program_uses.h"

#include <numeric>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::detail {
namespace {

// The tensors of an argument.
std::vector<ExportedId> ids_of(const ExportedArgument& argument) {
  if (const auto* value = std::get_if<ValueArgument>(&argument)) return {value->id};
  if (const auto* values = std::get_if<ValuesArgument>(&argument)) return values->ids;
  return {};
}

}  // namespace

ProgramUses::ProgramUses(const ExportedProgram& program)
    : counts_(program.values.size(), 0),
      memory_(program.values.size()),
      is_written_(program.values.size(), 0),
      nodes_(program.nodes.size()) {
  std::iota(memory_.begin(), memory_.end(), 0);
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const ExportedNode& node = program.nodes[i];
    for_each_argument(node, [&](ExportedId id) { ++counts_[id]; });
    const auto op = try_find_operator(node.op);
    if (!op) continue;
    // reshape() may give the memory it was given, though its schema does not say so.
    const bool may_alias = node.op == "aten::reshape" || node.op == "aten::contiguous";
    for (const c10::Argument& argument : op->schema().arguments()) {
      const auto found = node.arguments.find(argument.name());
      if (found == node.arguments.end()) continue;
      const c10::AliasInfo* alias = argument.alias_info();
      if (alias == nullptr && !may_alias) continue;
      for (ExportedId id : ids_of(found->second)) {
        if (id == kNoExportedValue) continue;
        for_each_result(node, [&](ExportedId result) { memory_[result] = memory_[id]; });
        if (alias != nullptr && alias->isWrite()) nodes_[i].written.push_back(id);
      }
    }
  }
  for (const Node& node : nodes_) {
    for (ExportedId id : node.written) is_written_[memory_[id]] = 1;
  }
  for (const ExportedOutput& output : program.outputs) ++counts_[output.id];
}

void ProgramUses::check_writes(const ExportedProgram& program) const {
  // Backwards, with what is there already and is read from here on.
  std::vector<char> is_read(program.values.size(), 0);
  for (const ExportedOutput& output : program.outputs) is_read[output.id] = 1;
  for (size_t i = program.nodes.size(); i-- > 0;) {
    for_each_result(program.nodes[i], [&](ExportedId id) { is_read[id] = 0; });
    for (ExportedId written : nodes_[i].written) {
      for (size_t id = 0; id < is_read.size(); ++id) {
        TP_CHECK(!is_read[id] || static_cast<ExportedId>(id) == written ||
                     memory_[id] != memory_[written],
                 "export_onnx",
                 "{} writes to memory that is read later as another tensor, which ONNX cannot say. "
                 "Use the operator that does not work in place.",
                 describe(program.nodes[i]));
      }
    }
    for_each_argument(program.nodes[i], [&](ExportedId id) { is_read[id] = 1; });
  }
}

}  // namespace tensorpack::detail
