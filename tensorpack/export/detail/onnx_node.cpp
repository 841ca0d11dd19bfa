// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/detail/onnx_node.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/error.h"

namespace tensorpack::detail {
namespace {

constexpr const char* kExporter = "export_onnx";

std::vector<OnnxDimension> onnx_shape(const ExportedValue& value, int64_t unit) {
  std::vector<OnnxDimension> shape;
  for (const Extent& extent : value.shape) {
    if (extent.is_fixed()) {
      shape.emplace_back(extent.offset);
    } else {
      shape.emplace_back(tensorpack::describe(extent, unit));
    }
  }
  return shape;
}

const OnnxMapping* find_mapping(const std::string& op) {
  for (const auto* table : {&onnx_pointwise(), &onnx_layers(), &onnx_shapes()}) {
    const auto found = table->find(op);
    if (found != table->end()) return &found->second;
  }
  return nullptr;
}

}  // namespace

// ---- the conversion

OnnxConversion::OnnxConversion(const ExportedProgram& program) : program_(program) {
  for (const ExportedConstant& constant : program.constants) {
    constants_.emplace(constant.id, &constant);
  }
  for (const ExportedInput& input : program.inputs) {
    const ExportedValue& value = program.values[input.id];
    graph_.add_input(input.spec.name, value.dtype, onnx_shape(value, program.unit));
    names_[input.id] = input.spec.name;
  }
}

void OnnxConversion::add(const ExportedNode& node) {
  // relu_() is what relu() is: the value it was given is another from here on.
  ExportedNode functional = node;
  const size_t dot = std::min(node.op.find('.'), node.op.size());
  if (node.op[dot - 1] == '_') functional.op.erase(dot - 1, 1);
  const OnnxMapping* mapping = find_mapping(functional.op);
  TP_CHECK(mapping != nullptr, kExporter,
           "{} has no mapping to ONNX. Use operators that have one, or export_model().",
           tensorpack::describe(node));
  graph_.set_layer(node.layer);
  OnnxNode view(*this, functional);
  try {
    (*mapping)(view);
  } catch (
      const std::logic_error& error) {  // arguments of other types or numbers than the schema's
    view.check(false, fmt::format("its arguments are not those of its schema ({})", error.what()));
  } catch (const std::bad_variant_access& error) {
    view.check(false, fmt::format("its arguments are not those of its schema ({})", error.what()));
  }
  graph_.set_layer("");
}

void OnnxConversion::add_outputs() {
  for (const ExportedOutput& output : program_.outputs) {
    const ExportedValue& value = program_.values[output.id];
    graph_.add_output(output.name, name_of(output.id), value.dtype,
                      onnx_shape(value, program_.unit));
  }
}

std::string OnnxConversion::name_of(ExportedId id) {
  const auto found = names_.find(id);
  if (found != names_.end()) return found->second;
  const auto constant = constants_.find(id);
  if (constant == constants_.end()) return "";
  const ExportedConstant& source = *constant->second;
  if (source.tensor.defined()) return names_[id] = graph_.constant(source.tensor, source.name);
  if (const auto* number = std::get_if<Extent>(&source.number); number && !number->is_fixed()) {
    return names_[id] = graph_.node("Squeeze", {extent(*number)});
  }
  const at::Scalar scalar = std::visit(
      [](const auto& value) -> at::Scalar {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Extent>) {
          return value.offset;
        } else {
          return value;
        }
      },
      source.number);
  return names_[id] =
             graph_.constant(at::scalar_tensor(scalar, program_.values[id].dtype), "number");
}

// The batch size as a list of one integer.
std::string OnnxConversion::batch() {
  if (!batch_.empty()) return batch_;
  for (const ExportedInput& input : program_.inputs) {
    const auto dim = std::find(input.spec.shape.begin(), input.spec.shape.end(), -1);
    if (dim == input.spec.shape.end()) continue;
    const std::string shape = graph_.node("Shape", {input.spec.name});
    const std::string index = graph_.integers({dim - input.spec.shape.begin()});
    return batch_ = graph_.node("Gather", {shape, index}, {{"axis", 0L}});
  }
  throw InternalError("a size follows from the batch, and no input has one");
}

std::string OnnxConversion::extent(const Extent& extent) {
  if (extent.is_fixed()) return graph_.integers({extent.offset});
  std::string size = batch();
  if (extent.slope != program_.unit) {
    size = graph_.node("Mul", {size, graph_.integers({extent.slope})});
    if (program_.unit != 1) size = graph_.node("Div", {size, graph_.integers({program_.unit})});
  }
  return extent.offset == 0 ? size : graph_.node("Add", {size, graph_.integers({extent.offset})});
}

// ---- one node

void OnnxNode::check(bool condition, const std::string& what) const {
  TP_CHECK(condition, kExporter, "{}: {}, which has no mapping to ONNX. Use export_model().",
           tensorpack::describe(node_), what);
}

const ExportedArgument* OnnxNode::find(const std::string& name) const {
  const auto found = node_.arguments.find(name);
  const bool is_given =
      found != node_.arguments.end() && !std::holds_alternative<std::monostate>(found->second);
  return is_given ? &found->second : nullptr;
}

bool OnnxNode::given(const std::string& name) const { return find(name) != nullptr; }

ExportedId OnnxNode::id(const std::string& name) const {
  const ExportedArgument* argument = find(name);
  if (argument == nullptr) return kNoExportedValue;
  const auto* value = std::get_if<ValueArgument>(argument);
  check(value != nullptr, "its argument '" + name + "' is not a tensor");
  return value->id;
}

const ExportedValue& OnnxNode::value(const std::string& name) const {
  const ExportedId number = id(name);
  check(number != kNoExportedValue, "it has no argument '" + name + "'");
  return conversion_.program_.values[number];
}

const ExportedValue& OnnxNode::result_value(size_t index) const {
  return conversion_.program_.values[node_.results.at(index).ids.at(0)];
}

std::string OnnxNode::in(const std::string& name) {
  const ExportedId number = id(name);
  if (number == kNoExportedValue) return "";
  const std::string found = conversion_.name_of(number);
  check(!found.empty(),
        "its argument '" + name + "' is a result of an operator that is not mapped");
  return found;
}

std::string OnnxNode::as(ExportedId id, c10::ScalarType dtype) {
  const std::string name = conversion_.name_of(id);
  check(!name.empty(), "an argument is a result of an operator that is not mapped");
  if (conversion_.program_.values[id].dtype == dtype) return name;
  const auto source = conversion_.constants_.find(id);
  if (source != conversion_.constants_.end() && !source->second->tensor.defined()) {
    if (const auto* number = std::get_if<double>(&source->second->number)) {
      return scalar(*number, dtype);
    }
  }
  return cast(name, dtype);
}

std::string OnnxNode::in(const std::string& name, c10::ScalarType dtype) {
  const ExportedId number = id(name);
  return number == kNoExportedValue ? "" : as(number, dtype);
}

std::string OnnxNode::operand(const std::string& name, c10::ScalarType dtype) {
  const ExportedArgument* argument = find(name);
  if (argument == nullptr || std::holds_alternative<ValueArgument>(*argument)) {
    return in(name, dtype);
  }
  const auto* extent = std::get_if<Extent>(argument);
  if (extent == nullptr || extent->is_fixed()) return scalar(number(name, 0), dtype);
  return cast(emit("Squeeze", {conversion_.extent(*extent)}), dtype);
}

bool OnnxNode::is_number(const std::string& name) const {
  const ExportedArgument* argument = find(name);
  if (argument == nullptr || !std::holds_alternative<ValueArgument>(*argument)) return true;
  const auto found = conversion_.constants_.find(id(name));
  return found != conversion_.constants_.end() && !found->second->tensor.defined();
}

std::vector<std::string> OnnxNode::ins(const std::string& name) {
  const ExportedArgument* argument = find(name);
  const auto* values = argument == nullptr ? nullptr : std::get_if<ValuesArgument>(argument);
  check(values != nullptr, "its argument '" + name + "' is not a list of tensors");
  std::vector<std::string> names;
  for (ExportedId id : values->ids) {
    names.push_back(id == kNoExportedValue ? "" : conversion_.name_of(id));
  }
  return names;
}

std::vector<std::string> OnnxNode::ins(const std::string& name, c10::ScalarType dtype) {
  ins(name);
  std::vector<std::string> names;
  for (ExportedId id : std::get<ValuesArgument>(*find(name)).ids) names.push_back(as(id, dtype));
  return names;
}

at::Tensor OnnxNode::constant(const std::string& name) const {
  const auto found = conversion_.constants_.find(id(name));
  return found == conversion_.constants_.end() ? at::Tensor() : found->second->tensor;
}

bool OnnxNode::flag(const std::string& name, bool standard) const {
  const ExportedArgument* argument = find(name);
  return argument == nullptr ? standard : std::get<bool>(*argument);
}

int64_t OnnxNode::fixed(const Extent& extent, const std::string& name) const {
  check(extent.is_fixed(), "its argument '" + name + "' follows from the batch size");
  return extent.offset;
}

int64_t OnnxNode::integer(const std::string& name, std::optional<int64_t> standard) const {
  const ExportedArgument* argument = find(name);
  check(argument != nullptr || standard, "it has no argument '" + name + "'");
  return argument == nullptr ? *standard : fixed(std::get<Extent>(*argument), name);
}

double OnnxNode::number(const std::string& name, double standard) const {
  const ExportedArgument* argument = find(name);
  if (argument == nullptr) return standard;
  if (const auto* value = std::get_if<double>(argument)) return *value;
  if (const auto* value = std::get_if<bool>(argument)) return *value ? 1 : 0;
  return static_cast<double>(fixed(std::get<Extent>(*argument), name));
}

std::string OnnxNode::text(const std::string& name, std::string standard) const {
  const ExportedArgument* argument = find(name);
  return argument == nullptr ? std::move(standard) : std::get<std::string>(*argument);
}

std::vector<Extent> OnnxNode::extents(const std::string& name) const {
  const ExportedArgument* argument = find(name);
  if (argument == nullptr) return {};
  if (const auto* one = std::get_if<Extent>(argument)) return {*one};
  return std::get<std::vector<Extent>>(*argument);
}

std::vector<int64_t> OnnxNode::integers(const std::string& name) const {
  std::vector<int64_t> values;
  for (const Extent& extent : extents(name)) values.push_back(fixed(extent, name));
  return values;
}

std::vector<int64_t> OnnxNode::integers(const std::string& name, size_t count) const {
  std::vector<int64_t> values = integers(name);
  if (values.size() == 1) values.resize(count, values[0]);
  check(values.size() == count, "its argument '" + name + "' is too long or too short");
  return values;
}

int64_t OnnxNode::axis(int64_t dim, int64_t rank) const { return dim < 0 ? dim + rank : dim; }

std::vector<int64_t> OnnxNode::last_sizes(const std::string& name, size_t count) const {
  const std::vector<Extent>& sizes = shape(name);
  std::vector<int64_t> last;
  for (size_t i = sizes.size() - count; i < sizes.size(); ++i) {
    last.push_back(fixed(sizes[i], name));
  }
  return last;
}

std::string OnnxNode::emit(const std::string& type, const std::vector<std::string>& inputs,
                           const std::vector<OnnxAttribute>& attributes) {
  return conversion_.graph_.node(type, inputs, attributes);
}

std::vector<std::string> OnnxNode::emit(const std::string& type,
                                        const std::vector<std::string>& inputs,
                                        const std::vector<OnnxAttribute>& attributes,
                                        size_t results) {
  return conversion_.graph_.nodes(type, inputs, attributes, results);
}

std::string OnnxNode::cast(const std::string& value, c10::ScalarType dtype) {
  return emit("Cast", {value}, {{"to", static_cast<int64_t>(onnx_type(dtype))}});
}

std::string OnnxNode::scalar(double value, c10::ScalarType dtype) {
  return conversion_.graph_.constant(at::scalar_tensor(value, dtype), "number");
}

std::string OnnxNode::list(const std::vector<Extent>& values) {
  std::vector<int64_t> fixed_values;
  for (const Extent& value : values) {
    if (value.is_fixed()) fixed_values.push_back(value.offset);
  }
  if (fixed_values.size() == values.size()) return list(fixed_values);
  std::vector<std::string> parts;
  for (const Extent& value : values) parts.push_back(conversion_.extent(value));
  return emit("Concat", parts, {{"axis", 0L}});
}

void OnnxNode::give(const std::string& value, size_t index) {
  conversion_.names_[node_.results.at(index).ids.at(0)] = value;
}

void OnnxNode::give_list(const std::vector<std::string>& values) {
  const std::vector<ExportedId>& ids = node_.results.at(0).ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] != kNoExportedValue) conversion_.names_[ids[i]] = values.at(i);
  }
}

}  // namespace tensorpack::detail
