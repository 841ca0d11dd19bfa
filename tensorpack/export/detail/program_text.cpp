// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/detail/program_text.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/utils/hash.h"

namespace tensorpack::detail {
namespace {

using nlohmann::json;

constexpr int64_t kVersion = 1;

// ---- writing

json to_json(const Extent& extent) {
  if (extent.is_fixed()) return extent.offset;
  return {{"batch", {extent.slope, extent.offset}}};
}

json to_json(const std::vector<Extent>& extents) {
  json list = json::array();
  for (const Extent& extent : extents) list.push_back(to_json(extent));
  return list;
}

json to_json(double number) {
  if (std::isfinite(number)) return number;
  return {{"float", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
}

json to_json(const std::vector<double>& numbers) {
  json list = json::array();
  for (double number : numbers) list.push_back(to_json(number));
  return list;
}

json to_json(const std::vector<ExportedId>& ids) {
  json list = json::array();
  for (ExportedId id : ids) list.push_back(id == kNoExportedValue ? json() : json(id));
  return list;
}

struct ArgumentWriter {
  json operator()(std::monostate) const { return nullptr; }
  json operator()(bool value) const { return value; }
  json operator()(const std::string& value) const { return {{"string", value}}; }
  json operator()(const std::vector<bool>& values) const { return values; }
  json operator()(DeviceOfProgram) const { return {{"device", "program"}}; }
  json operator()(const ValueArgument& value) const { return {{"value", value.id}}; }
  json operator()(const ValuesArgument& values) const { return {{"values", to_json(values.ids)}}; }
  template <typename T>
  json operator()(const T& value) const {
    return to_json(value);
  }
};

json to_json(const ExportedNode& node) {
  json arguments = json::object();
  for (const auto& [name, value] : node.arguments) {
    arguments[name] = std::visit(ArgumentWriter(), value);
  }
  json results = json::array();
  for (const ExportedResult& result : node.results) {
    if (result.is_list) {
      results.push_back(to_json(result.ids));
    } else {
      results.push_back(
          result.ids.empty() || result.ids[0] == kNoExportedValue ? json() : json(result.ids[0]));
    }
  }
  json text = {{"op", node.op}, {"arguments", arguments}, {"results", results}};
  if (!node.layer.empty()) text["layer"] = node.layer;
  if (!node.grad_mode) text["grad_mode"] = false;
  return text;
}

json to_json(const ExportedConstant& constant) {
  if (!constant.tensor.defined()) {
    return {{"value", constant.id}, {"number", std::visit(ArgumentWriter(), constant.number)}};
  }
  return {{"value", constant.id},
          {"tensor", constant.name},
          {"order", memory_order(constant.tensor)},
          {"checksum", fmt::format("{:016x}", checksum_of(constant.tensor))}};
}

// ---- reading

const json& field(const json& object, const char* key) {
  require(object.is_object() && object.contains(key), "its program has an entry without '{}'", key);
  return object[key];
}

int64_t integer(const json& value) {
  require(
      value.is_number_integer() && (!value.is_number_unsigned() ||
                                    value.get<uint64_t>() <= std::numeric_limits<int64_t>::max()),
      "its program has '{}' where an integer belongs", value.dump());
  return value.get<int64_t>();
}

const std::string& text(const json& value) {
  require(value.is_string(), "its program has '{}' where a text belongs", value.dump());
  return value.get_ref<const std::string&>();
}

const json& array(const json& value) {
  require(value.is_array(), "its program has '{}' where a list belongs", value.dump());
  return value;
}

bool is_tagged(const json& value, const char* tag) {
  return value.is_object() && value.size() == 1 && value.contains(tag);
}

bool is_extent(const json& value) { return value.is_number_integer() || is_tagged(value, "batch"); }

Extent parse_extent(const json& value) {
  if (!is_tagged(value, "batch")) return {0, integer(value)};
  const json& numbers = array(value["batch"]);
  require(numbers.size() == 2, "its program has a size of {} numbers", numbers.size());
  return {integer(numbers[0]), integer(numbers[1])};
}

double parse_double(const json& value) {
  if (value.is_number_float()) return value.get<double>();
  require(is_tagged(value, "float"), "its program has '{}' where a number belongs", value.dump());
  const std::string& name = text(value["float"]);
  require(name == "nan" || name == "inf" || name == "-inf", "its program has the number '{}'",
          name);
  const double infinity = std::numeric_limits<double>::infinity();
  return name == "nan" ? std::nan("") : name == "inf" ? infinity : -infinity;
}

c10::ScalarType parse_dtype(const std::string& name) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const char* known = dtype_name(static_cast<c10::ScalarType>(i));
    if (known != nullptr && name == known) return static_cast<c10::ScalarType>(i);
  }
  throw malformed("its program has the type '{}', which is not supported", name);
}

// Follows which values exist while a program is read from its first line to its last.
class Reader {
 public:
  explicit Reader(const json& root) : root_(root) {}
  ParsedProgram run();

 private:
  ExportedId id(const json& value) const {
    const int64_t number = integer(value);
    require(number >= 0 && number < static_cast<int64_t>(is_made_.size()),
            "its program speaks of value {} of {}", number, is_made_.size());
    return static_cast<ExportedId>(number);
  }
  ExportedId used(const json& value) const {
    const ExportedId number = id(value);
    require(is_made_[number] != 0, "its program uses value {} before it is made", number);
    return number;
  }
  ExportedId made(const json& value, bool may_exist = false) {
    const ExportedId number = id(value);
    require(may_exist || is_made_[number] == 0, "its program makes value {} twice", number);
    is_made_[number] = 1;
    return number;
  }
  ExportedValue parse_value(const json& value) const;
  ExportedInput parse_input(const json& value);
  void parse_constant(const json& value);
  ExportedArgument parse_argument(const json& value) const;
  ExportedArgument parse_list(const json& list) const;
  ExportedNode parse_node(const json& value);

  const json& root_;
  ParsedProgram parsed_;
  std::vector<char> is_made_;
};

ExportedValue Reader::parse_value(const json& value) const {
  ExportedValue parsed{.dtype = parse_dtype(text(field(value, "dtype")))};
  for (const json& size : array(field(value, "shape"))) parsed.shape.push_back(parse_extent(size));
  return parsed;
}

ExportedInput Reader::parse_input(const json& value) {
  ExportedInput input{.id = made(field(value, "value"))};
  const ExportedValue& described = parsed_.program.values[input.id];
  input.spec = {.name = text(field(value, "name")), .dtype = described.dtype};
  for (const Extent& extent : described.shape) {
    const bool is_batch = extent == Extent{parsed_.program.unit, 0};
    require(is_batch || (extent.is_fixed() && extent.offset >= 0),
            "the input '{}' of its program has an impossible shape", input.spec.name);
    input.spec.shape.push_back(is_batch ? -1 : extent.offset);
  }
  return input;
}

void Reader::parse_constant(const json& value) {
  ExportedConstant constant{.id = made(field(value, "value"))};
  if (value.contains("number")) {
    const json& number = value["number"];
    if (number.is_boolean()) {
      constant.number = number.get<bool>();
    } else if (is_extent(number)) {
      constant.number = parse_extent(number);
    } else {
      constant.number = parse_double(number);
    }
    parsed_.program.constants.push_back(std::move(constant));
    return;
  }
  const ExportedValue& described = parsed_.program.values[constant.id];
  TensorRecord record{.name = text(field(value, "tensor")), .dtype = described.dtype};
  for (const Extent& extent : described.shape) {
    require(extent.is_fixed() && extent.offset >= 0, "the tensor '{}' of its program has no shape",
            record.name);
    record.shape.push_back(extent.offset);
  }
  std::set<int64_t> dims;
  for (const json& dim : array(field(value, "order"))) {
    record.order.push_back(integer(dim));
    dims.insert(record.order.back());
  }
  const auto rank = static_cast<int64_t>(record.shape.size());
  require(record.order.size() == record.shape.size() && dims.size() == record.shape.size() &&
              (rank == 0 || (*dims.begin() == 0 && *dims.rbegin() == rank - 1)),
          "the order of the dimensions of '{}' is not one", record.name);
  const std::string& digits = text(field(value, "checksum"));
  require(digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos,
          "the checksum of '{}' is not one", record.name);
  record.checksum = std::stoull(digits, nullptr, 16);
  constant.name = record.name;
  parsed_.tensors.emplace(constant.id, std::move(record));
  parsed_.program.constants.push_back(std::move(constant));
}

ExportedArgument Reader::parse_list(const json& list) const {
  if (!list.empty() && list[0].is_boolean()) {
    std::vector<bool> items;
    for (const json& item : list) {
      require(item.is_boolean(), "its program has a list of several types");
      items.push_back(item.get<bool>());
    }
    return items;
  }
  if (list.empty() || is_extent(list[0])) {
    std::vector<Extent> items;
    for (const json& item : list) items.push_back(parse_extent(item));
    return items;
  }
  std::vector<double> items;
  for (const json& item : list) items.push_back(parse_double(item));
  return items;
}

ExportedArgument Reader::parse_argument(const json& value) const {
  if (value.is_null()) return std::monostate{};
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_array()) return parse_list(value);
  if (is_extent(value)) return parse_extent(value);
  if (is_tagged(value, "string")) return text(value["string"]);
  if (is_tagged(value, "device")) {
    require(text(value["device"]) == "program", "its program speaks of another device");
    return DeviceOfProgram{};
  }
  if (is_tagged(value, "value")) return ValueArgument{used(value["value"])};
  if (is_tagged(value, "values")) {
    ValuesArgument values;
    for (const json& item : array(value["values"])) {
      values.ids.push_back(item.is_null() ? kNoExportedValue : used(item));
    }
    return values;
  }
  return parse_double(value);
}

ExportedNode Reader::parse_node(const json& value) {
  ExportedNode node{.op = text(field(value, "op"))};
  if (value.contains("layer")) node.layer = text(value["layer"]);
  if (value.contains("grad_mode")) {
    require(value["grad_mode"].is_boolean(), "its program has a mode that is not true or false");
    node.grad_mode = value["grad_mode"].get<bool>();
  }
  const json& arguments = field(value, "arguments");
  require(arguments.is_object(), "the arguments of {} are not an object", describe(node));
  for (const auto& [name, argument] : arguments.items()) {
    node.arguments.emplace(name, parse_argument(argument));
  }
  for (const json& result : array(field(value, "results"))) {
    ExportedResult parsed{.is_list = result.is_array()};
    // An operator that works in place returns what it was given.
    const auto add = [&](const json& item) {
      parsed.ids.push_back(item.is_null() ? kNoExportedValue : made(item, /*may_exist=*/true));
    };
    if (parsed.is_list) {
      for (const json& item : result) add(item);
    } else {
      add(result);
    }
    node.results.push_back(std::move(parsed));
  }
  return node;
}

ParsedProgram Reader::run() {
  const int64_t version = integer(field(root_, "version"));
  require(version == kVersion, "its program is of version {}, and this library reads version {}",
          version, kVersion);
  ExportedProgram& program = parsed_.program;
  program.unit = integer(field(root_, "unit"));
  require(program.unit >= 1, "the unit of its batches is {}", program.unit);
  for (const json& value : array(field(root_, "values"))) {
    program.values.push_back(parse_value(value));
  }
  is_made_.resize(program.values.size());
  for (const json& input : array(field(root_, "inputs"))) {
    program.inputs.push_back(parse_input(input));
  }
  for (const json& constant : array(field(root_, "constants"))) parse_constant(constant);
  for (const json& node : array(field(root_, "nodes"))) program.nodes.push_back(parse_node(node));
  for (const json& output : array(field(root_, "outputs"))) {
    program.outputs.push_back({text(field(output, "name")), used(field(output, "value"))});
  }
  require(!program.outputs.empty(), "its program has no outputs");
  return std::move(parsed_);
}

json parse_json(std::string_view text) {
  constexpr int kMaxDepth =
      8;  // program, nodes, node, arguments, argument, list, size, its numbers
  return json::parse(text, [](int depth, json::parse_event_t event, json&) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      require(depth <= kMaxDepth, "its program has lists inside of lists that no program has");
    }
    return true;
  });
}

}  // namespace

std::vector<int64_t> memory_order(const at::Tensor& tensor) {
  std::vector<int64_t> order(static_cast<size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), 0);
  if (tensor.is_contiguous() || !tensor.is_non_overlapping_and_dense()) return order;
  if (tensor.dim() == 4 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast))
    return {0, 2, 3, 1};
  if (tensor.dim() == 5 && tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d)) {
    return {0, 2, 3, 4, 1};
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return tensor.stride(a) > tensor.stride(b); });
  return order;
}

at::Tensor in_memory_order(const at::Tensor& tensor, const std::vector<int64_t>& order) {
  std::vector<int64_t> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[order[i]] = static_cast<int64_t>(i);
  return tensor.permute(order).contiguous().permute(back);
}

uint64_t checksum_of(const at::Tensor& tensor) {
  const at::Tensor elements = tensor.detach().cpu().contiguous();
  return xxh64({static_cast<const char*>(elements.data_ptr()), elements.nbytes()});
}

std::string format_program(const ExportedProgram& program) {
  json values = json::array();
  for (const ExportedValue& value : program.values) {
    values.push_back({{"dtype", dtype_name(value.dtype)}, {"shape", to_json(value.shape)}});
  }
  json inputs = json::array();
  for (const ExportedInput& input : program.inputs) {
    inputs.push_back({{"name", input.spec.name}, {"value", input.id}});
  }
  json outputs = json::array();
  for (const ExportedOutput& output : program.outputs) {
    outputs.push_back({{"name", output.name}, {"value", output.id}});
  }
  json constants = json::array();
  for (const ExportedConstant& constant : program.constants) constants.push_back(to_json(constant));
  json nodes = json::array();
  for (const ExportedNode& node : program.nodes) nodes.push_back(to_json(node));
  return json{{"version", kVersion}, {"unit", program.unit}, {"inputs", inputs},
              {"outputs", outputs},  {"values", values},     {"constants", constants},
              {"nodes", nodes}}
      .dump();
}

ParsedProgram parse_program(std::string_view text) {
  require(text.find('\0') == std::string_view::npos, "its program has a byte 0");
  try {
    const json root = parse_json(text);
    return Reader(root).run();
  } catch (const json::exception& e) {
    throw malformed("its program is not valid JSON ({})", e.what());
  }
}

}  // namespace tensorpack::detail
