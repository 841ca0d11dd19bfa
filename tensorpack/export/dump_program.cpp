// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/dump_program.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

class ProgramDump {
 public:
  explicit ProgramDump(const ExportedProgram& program) : program_(program) {
    for (const ExportedInput& input : program.inputs) names_[input.id] = "$" + input.spec.name;
    for (const ExportedConstant& constant : program.constants) {
      names_[constant.id] =
          constant.tensor.defined() ? "$" + constant.name : std::visit(*this, constant.number);
    }
  }

  std::string run() const {
    std::string text;
    for (const ExportedInput& input : program_.inputs) {
      text += fmt::format("input  {}: {}\n", input.spec.name, type(input.id));
    }
    for (const ExportedOutput& output : program_.outputs) {
      text += fmt::format("output {}: {} = {}\n", output.name, type(output.id), name(output.id));
    }
    uint64_t bytes = 0;
    for (const ExportedConstant& constant : program_.constants) {
      if (!constant.tensor.defined()) continue;
      bytes += constant.tensor.nbytes();
      text += fmt::format("tensor {}: {}\n", constant.name, type(constant.id));
    }
    for (const ExportedNode& node : program_.nodes) text += line(node);
    return text + fmt::format("{}, {} of tensors\n",
                              counted(std::ssize(program_.nodes), "operator"),
                              humanize_bytes(bytes));
  }

  // Literals.
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(double value) const { return fmt::format("{}", value); }
  std::string operator()(const std::string& value) const { return "'" + value + "'"; }
  std::string operator()(DeviceOfProgram) const { return "device"; }
  std::string operator()(const Extent& value) const { return describe(value, program_.unit); }
  std::string operator()(const std::vector<Extent>& values) const {
    return describe(values, program_.unit);
  }
  std::string operator()(const ValueArgument& value) const { return name(value.id); }
  std::string operator()(const ValuesArgument& values) const {
    return list_of(values.ids, [this](ExportedId id) { return name(id); });
  }
  template <typename T>
  std::string operator()(const std::vector<T>& values) const {
    return list_of(values, [this](T value) { return (*this)(value); });
  }

 private:
  template <typename T, typename ToText>
  static std::string list_of(const std::vector<T>& items, const ToText& to_text) {
    std::vector<std::string> texts;
    for (const auto& item : items) texts.push_back(to_text(item));
    return fmt::format("[{}]", join(texts, ", "));
  }

  std::string name(ExportedId id) const {
    if (id == kNoExportedValue) return "none";
    const auto found = names_.find(id);
    return found == names_.end() ? fmt::format("%{}", id) : found->second;
  }

  std::string type(ExportedId id) const {
    const ExportedValue& value = program_.values[id];
    return fmt::format("{} {}", c10::toString(value.dtype), describe(value.shape, program_.unit));
  }

  std::string line(const ExportedNode& node) const {
    std::vector<std::string> results, arguments;
    for (const ExportedResult& result : node.results) {
      for (ExportedId id : result.ids) {
        results.push_back(id == kNoExportedValue ? "_" : name(id) + ": " + type(id));
      }
    }
    for (const auto& [key, argument] : node.arguments) {
      arguments.push_back(key + "=" + std::visit(*this, argument));
    }
    return fmt::format("{} = {}({}){}\n", join(results, ", "), node.op, join(arguments, ", "),
                       node.layer.empty() ? "" : "  @" + node.layer);
  }

  const ExportedProgram& program_;
  std::map<ExportedId, std::string> names_;
};

}  // namespace

std::string dump_text(const ExportedProgram& program) { return ProgramDump(program).run(); }

}  // namespace tensorpack
