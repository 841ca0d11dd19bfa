// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/detail/program_uses.h"

#include <numeric>
#include <set>
#include <string>

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

// They may give the memory they were given, though their schemas do not say so.
bool may_alias(const std::string& op) { return op == "aten::reshape" || op == "aten::contiguous"; }

// And these, too. What libtorch makes by them it does not write through two of its names.
bool may_alias_secretly(const std::string& op) {
  static const std::set<std::string> table = {
      "aten::_unsafe_view",        "aten::conj_physical",           "aten::copy",
      "aten::unsafe_split.Tensor", "aten::unsafe_split_with_sizes",
  };
  return table.contains(op);
}

}  // namespace

SharedMemory::SharedMemory(size_t values) : next_(values) {
  std::iota(next_.begin(), next_.end(), 0);
}

ExportedId SharedMemory::of(ExportedId id) const {
  while (next_[id] != id) id = next_[id];
  return id;
}

void SharedMemory::join(ExportedId a, ExportedId b) {
  const ExportedId memory = of(b);
  next_[of(a)] = memory;
  next_[a] = memory;
}

ProgramUses::ProgramUses(const ExportedProgram& program)
    : counts_(program.values.size(), 0),
      declared_(program.values.size()),
      possible_(program.values.size()),
      is_written_(program.values.size(), 0),
      nodes_(program.nodes.size()) {
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const ExportedNode& node = program.nodes[i];
    for_each_argument(node, [&](ExportedId id) { ++counts_[id]; });
    const auto op = try_find_operator(node.op);
    if (!op) continue;
    for (const c10::Argument& argument : op->schema().arguments()) {
      const auto found = node.arguments.find(argument.name());
      if (found == node.arguments.end()) continue;
      const c10::AliasInfo* alias = argument.alias_info();
      const bool is_declared = alias != nullptr || may_alias(node.op);
      if (!is_declared && !may_alias_secretly(node.op)) continue;
      for (ExportedId id : ids_of(found->second)) {
        if (id == kNoExportedValue) continue;
        for_each_result(node, [&](ExportedId result) {
          possible_.join(result, id);
          if (is_declared) declared_.join(result, id);
        });
        if (alias != nullptr && alias->isWrite()) nodes_[i].written.push_back(id);
      }
    }
  }
  for (const Node& node : nodes_) {
    for (ExportedId id : node.written) is_written_[possible_.of(id)] = 1;
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
                     declared_.of(static_cast<ExportedId>(id)) != declared_.of(written),
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
