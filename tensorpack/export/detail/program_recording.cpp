// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/detail/program_recording.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <array>
#include <numeric>
#include <optional>
#include <set>

#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {
namespace {

constexpr size_t kRecordings = std::size(kRecordedBatches);
constexpr const char* kRecording = "export_model";

std::string describe(const Node& node) {
  return node.scope.empty() ? node.op_name()
                            : fmt::format("{} in layer '{}'", node.op_name(), node.scope);
}

// The extent that takes these values at the recorded batch sizes, if there is one.
std::optional<Extent> fit(const std::array<int64_t, kRecordings>& values) {
  if (values[0] == values[1] && values[1] == values[2]) return Extent{0, values[0]};
  const int64_t run = kRecordedBatches[1] - kRecordedBatches[0];
  const int64_t rise = values[1] - values[0];
  const Extent extent{rise / run, values[0] - rise / run * kRecordedBatches[0]};
  const bool fits =
      rise % run == 0 && values[2] == extent.slope * kRecordedBatches[2] + extent.offset;
  return fits ? std::optional(extent) : std::nullopt;
}

template <typename T>
std::vector<T> to_vector(const c10::IValue& value) {
  std::vector<T> items;
  for (const c10::IValue& item : value.toListRef()) items.push_back(item.to<T>());
  return items;
}

// A literal of one recording; nothing for a kind that a file cannot hold.
std::optional<ExportedArgument> literal_of(const c10::IValue& value) {
  if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) return std::monostate{};
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return Extent{0, value.toInt()};
  if (value.isDouble()) return value.toDouble();
  if (value.isString()) return value.toStringRef();
  if (value.isBoolList()) return to_vector<bool>(value);
  if (value.isDoubleList()) return to_vector<double>(value);
  if (value.isDevice() && value.toDevice().is_cpu()) return DeviceOfProgram{};
  if (value.isIntList()) {
    std::vector<Extent> extents;
    for (int64_t item : value.toIntVector()) extents.push_back({0, item});
    return extents;
  }
  return std::nullopt;
}

// Several recordings side by side: their values are numbered in the order of their first use, which
// is the same in all.
class Generalization {
 public:
  Generalization(const std::vector<Trace>& traces, int64_t unit) : traces_(traces) {
    program_.unit = unit;
  }

  ExportedProgram run(const std::vector<TensorSpec>& inputs,
                      const std::vector<std::string>& outputs);

 private:
  using Ids = std::array<ValueId, kRecordings>;  // of one value in each recording

  void check_node(size_t index) const;
  void add_node(size_t index);
  ExportedArgument argument(size_t node, size_t index);
  ExportedArgument literal(size_t node, size_t index) const;
  ExportedId number(const Ids& ids, const std::string& user);
  void add_constant(const Ids& ids, ExportedId id, const std::string& user);
  void reduce_unit();

  const Node& node(size_t index, size_t recording = 0) const {
    return traces_[recording].nodes[index];
  }
  const Value& value(const Ids& ids, size_t recording = 0) const {
    return traces_[recording].values[ids[recording]];
  }
  [[noreturn]] void fail_to_generalize(const std::string& user, const std::string& what) const {
    throw make_error(kRecording,
                     "{}: {} follows from the batch size in a way that is not a constant plus a "
                     "multiple of it. Compute it from sizes of tensors without rounding, or set "
                     "the batch by TensorSpec::trial_shape if only multiples of a size are meant.",
                     user, what);
  }

  const std::vector<Trace>& traces_;
  ExportedProgram program_;
  std::map<Ids, ExportedId> numbers_;
  std::array<std::set<ValueId>, kRecordings> numbered_;
  std::set<StorageId> written_;  // memory of the first recording that nodes write
};

// What the value of each recording is called in the program.
ExportedId Generalization::number(const Ids& ids, const std::string& user) {
  if (ids == Ids{kNoValue, kNoValue, kNoValue}) return kNoExportedValue;
  const auto known = numbers_.find(ids);
  if (known != numbers_.end()) return known->second;
  for (size_t r = 0; r < kRecordings; ++r) {
    TP_CHECK(
        ids[r] != kNoValue && numbered_[r].insert(ids[r]).second, kRecording,
        "{}: what it is given differs with the batch size. Write the model so that every batch "
        "takes the same way.",
        user);
  }
  const auto id = static_cast<ExportedId>(program_.values.size());
  numbers_.emplace(ids, id);
  const Value& first = value(ids);
  ExportedValue described{.dtype = first.options.dtype().toScalarType()};
  TP_CHECK(first.storage_bytes >= 0 && dtype_name(described.dtype) != nullptr, kRecording,
           "{}: a tensor that is not a plain one of real numbers, integers or booleans cannot be "
           "exported.",
           user);
  for (size_t dim = 0; dim < first.sizes.size(); ++dim) {
    std::array<int64_t, kRecordings> sizes;
    for (size_t r = 0; r < kRecordings; ++r) {
      const Value& other = value(ids, r);
      TP_CHECK(other.sizes.size() == first.sizes.size() && other.kind == first.kind &&
                   other.options.dtype() == first.options.dtype(),
               kRecording,
               "{}: a tensor has another type or number of dimensions with another batch "
               "size. Write the model so that it has not.",
               user);
      sizes[r] = other.sizes[dim];
    }
    const auto extent = fit(sizes);
    if (!extent) fail_to_generalize(user, fmt::format("dimension {} of a tensor", dim));
    described.shape.push_back(*extent);
  }
  program_.values.push_back(std::move(described));
  if (first.is_persistent()) add_constant(ids, id, user);
  return id;
}

void Generalization::add_constant(const Ids& ids, ExportedId id, const std::string& user) {
  const Value& first = value(ids);
  TP_CHECK(!written_.contains(first.storage), kRecording,
           "{}: it uses '{}', which the model writes to in prediction; an exported program has no "
           "state. Write to variables in training only.",
           user, first.name);
  ExportedConstant constant{.id = id, .name = first.name};
  if (first.tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    std::array<int64_t, kRecordings> numbers = {};
    bool is_equal = true;
    for (size_t r = 0; r < kRecordings; ++r) {
      const at::Tensor& tensor = value(ids, r).tensor;
      is_equal &= at::equal(tensor, first.tensor);
      if (tensor.scalar_type() == at::kLong) numbers[r] = tensor.item<int64_t>();
    }
    const auto extent = fit(numbers);
    if (first.tensor.scalar_type() == at::kLong && extent) {
      constant.number = *extent;
    } else if (is_equal && first.tensor.scalar_type() == at::kBool) {
      constant.number = first.tensor.item<bool>();
    } else if (is_equal && first.tensor.scalar_type() == at::kDouble) {
      constant.number = first.tensor.item<double>();
    } else {
      fail_to_generalize(user, "a number");
    }
    program_.constants.push_back(std::move(constant));
    return;
  }
  for (size_t r = 1; r < kRecordings; ++r) {
    const Value& other = value(ids, r);
    const bool is_same = other.name == first.name && other.tensor.sizes() == first.tensor.sizes() &&
                         other.tensor.strides() == first.tensor.strides() &&
                         (!first.name.empty() || at::equal(other.tensor, first.tensor));
    TP_CHECK(is_same, kRecording,
             "{}: it uses a tensor that was not made by operators (as torch::tensor() or host code "
             "makes them) and differs with the batch size. Make it by operators on the inputs.",
             user);
  }
  if (constant.name.empty())
    constant.name = fmt::format("(constant {})", program_.constants.size());
  constant.tensor = first.tensor.detach();
  program_.constants.push_back(std::move(constant));
}

void Generalization::check_node(size_t index) const {
  const Node& first = node(index);
  for (size_t r = 1; r < kRecordings; ++r) {
    const Node& other = node(index, r);
    TP_CHECK(other.op_name() == first.op_name() &&
                 other.arguments.size() == first.arguments.size() &&
                 other.results.size() == first.results.size() && other.grad_mode == first.grad_mode,
             kRecording,
             "the model takes another way with another batch size: {} with a batch of {}, {} with "
             "one of {}. Write it so that every batch takes the same way.",
             describe(first), kRecordedBatches[0] * program_.unit, describe(other),
             kRecordedBatches[r] * program_.unit);
  }
  TP_CHECK(!draws_random_numbers(first.op), kRecording,
           "{} draws random numbers, which an exported program has none of. Make them an input.",
           describe(first));
  TP_CHECK(!first.is_collective, kRecording,
           "{} exchanges with other towers, which an exported program has none of. Call it in "
           "training only.",
           describe(first));
}

ExportedArgument Generalization::literal(size_t index, size_t position) const {
  std::array<ExportedArgument, kRecordings> literals;
  for (size_t r = 0; r < kRecordings; ++r) {
    const c10::IValue& value = node(index, r).arguments[position].literal;
    auto found = literal_of(value);
    TP_CHECK(found.has_value(), kRecording,
             "{}: its argument '{}' is a {}, which a file cannot hold. Replace the operator.",
             describe(node(index)), node(index).op.schema().arguments()[position].name(),
             value.isDevice() ? value.toDevice().str() : value.tagKind());
    literals[r] = *found;
  }
  if (literals[0] == literals[1] && literals[1] == literals[2]) return literals[0];
  const auto fail = [&] {
    fail_to_generalize(
        describe(node(index)),
        fmt::format("its argument '{}'", node(index).op.schema().arguments()[position].name()));
  };
  const auto fit_or_fail = [&](const std::array<int64_t, kRecordings>& values) {
    const auto extent = fit(values);
    if (!extent) fail();
    return *extent;
  };
  if (std::holds_alternative<Extent>(literals[0])) {
    std::array<int64_t, kRecordings> values;
    for (size_t r = 0; r < kRecordings; ++r) {
      if (!std::holds_alternative<Extent>(literals[r])) fail();
      values[r] = std::get<Extent>(literals[r]).offset;
    }
    return fit_or_fail(values);
  }
  if (!std::holds_alternative<std::vector<Extent>>(literals[0])) fail();
  auto extents = std::get<std::vector<Extent>>(literals[0]);
  for (size_t i = 0; i < extents.size(); ++i) {
    std::array<int64_t, kRecordings> values;
    for (size_t r = 0; r < kRecordings; ++r) {
      const auto* list = std::get_if<std::vector<Extent>>(&literals[r]);
      if (list == nullptr || list->size() != extents.size()) fail();
      values[r] = (*list)[i].offset;
    }
    extents[i] = fit_or_fail(values);
  }
  return extents;
}

ExportedArgument Generalization::argument(size_t index, size_t position) {
  const Argument& first = node(index).arguments[position];
  const std::string user = describe(node(index));
  for (size_t r = 1; r < kRecordings; ++r) {
    const Argument& other = node(index, r).arguments[position];
    TP_CHECK(other.kind == first.kind && other.ids.size() == first.ids.size(), kRecording,
             "{}: it is given {} with a batch of {} and {} with one of {}. Write the model "
             "so that every batch takes the same way.",
             user, counted(std::ssize(first.ids), "tensor"), kRecordedBatches[0] * program_.unit,
             other.ids.size(), kRecordedBatches[r] * program_.unit);
  }
  if (first.kind == Argument::Kind::kLiteral) return literal(index, position);
  ValuesArgument values;
  for (size_t i = 0; i < first.ids.size(); ++i) {
    Ids ids;
    for (size_t r = 0; r < kRecordings; ++r) ids[r] = node(index, r).arguments[position].ids[i];
    values.ids.push_back(number(ids, user));
  }
  if (first.kind == Argument::Kind::kTensor) return ValueArgument{values.ids[0]};
  return values;
}

// How to see memory as another shape depends on its strides, and those on the kernels of a device:
// reshape() finds a way on all of them. It is the same where nobody writes to the memory.
bool is_read_only_view(const Node& node, const std::set<StorageId>& written) {
  const std::string name = node.op_name();
  if (name != "aten::view" && name != "aten::_reshape_alias" && name != "aten::_unsafe_view") {
    return false;
  }
  return std::none_of(node.reads.begin(), node.reads.end(),
                      [&](StorageId storage) { return written.contains(storage); });
}

void Generalization::add_node(size_t index) {
  check_node(index);
  const Node& first = node(index);
  const auto& schema = first.op.schema().arguments();
  ExportedNode exported{.op = first.op_name(), .layer = first.scope, .grad_mode = first.grad_mode};
  if (is_read_only_view(first, written_)) {
    exported.op = "aten::reshape";
    exported.arguments["self"] = argument(index, 0);
    exported.arguments["shape"] = argument(index, 1);
  } else {
    for (size_t i = 0; i < schema.size(); ++i) {
      ExportedArgument given = argument(index, i);
      const auto& standard = schema[i].default_value();
      if (standard.has_value() && literal_of(*standard) == given) continue;
      exported.arguments.emplace(schema[i].name(), std::move(given));
    }
  }
  for (size_t k = 0; k < first.results.size(); ++k) {
    ExportedResult result{.is_list = first.results[k].is_list};
    for (size_t i = 0; i < first.results[k].ids.size(); ++i) {
      Ids ids;
      for (size_t r = 0; r < kRecordings; ++r) {
        const auto& others = node(index, r).results[k].ids;
        TP_CHECK(others.size() == first.results[k].ids.size(), kRecording,
                 "{}: it gives {} with a batch of {} and {} with one of {}. Write the model "
                 "so that every batch takes the same way.",
                 describe(first), counted(std::ssize(first.results[k].ids), "tensor"),
                 kRecordedBatches[0] * program_.unit, others.size(),
                 kRecordedBatches[r] * program_.unit);
        ids[r] = others[i];
      }
      result.ids.push_back(number(ids, describe(first)));
    }
    exported.results.push_back(std::move(result));
  }
  program_.nodes.push_back(std::move(exported));
}

// Batches of any size, if no slope needs multiples.
void Generalization::reduce_unit() {
  std::vector<Extent*> extents;
  const auto add = [&](std::vector<Extent>& list) {
    for (Extent& extent : list) extents.push_back(&extent);
  };
  for (ExportedValue& value : program_.values) add(value.shape);
  for (ExportedConstant& constant : program_.constants) {
    if (auto* extent = std::get_if<Extent>(&constant.number)) extents.push_back(extent);
  }
  for (ExportedNode& node : program_.nodes) {
    for (auto& [name, argument] : node.arguments) {
      if (auto* extent = std::get_if<Extent>(&argument)) extents.push_back(extent);
      if (auto* list = std::get_if<std::vector<Extent>>(&argument)) add(*list);
    }
  }
  int64_t divisor = program_.unit;
  for (const Extent* extent : extents) divisor = std::gcd(divisor, extent->slope);
  for (Extent* extent : extents) extent->slope /= divisor;
  program_.unit /= divisor;
}

ExportedProgram Generalization::run(const std::vector<TensorSpec>& inputs,
                                    const std::vector<std::string>& outputs) {
  const Trace& first = traces_[0];
  for (size_t r = 1; r < kRecordings; ++r) {
    TP_CHECK(traces_[r].nodes.size() == first.nodes.size(), kRecording,
             "the model runs {} with a batch of {} and {} with one of {}. Write it so "
             "that every batch takes the same way.",
             counted(std::ssize(first.nodes), "operator"), kRecordedBatches[0] * program_.unit,
             traces_[r].nodes.size(), kRecordedBatches[r] * program_.unit);
  }
  for (const Node& node : first.nodes) written_.insert(node.writes.begin(), node.writes.end());
  std::set<ValueId> used;
  for (const Node& node : first.nodes) node.for_each_argument([&](ValueId id) { used.insert(id); });
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_output = std::any_of(first.outputs.begin(), first.outputs.end(),
                                       [&](auto& item) { return item.second == first.inputs[i]; });
    if (!is_output && !used.contains(first.inputs[i])) continue;
    Ids ids;
    for (size_t r = 0; r < kRecordings; ++r) ids[r] = traces_[r].inputs[i];
    program_.inputs.push_back({inputs[i], number(ids, "the input '" + inputs[i].name + "'")});
  }
  for (size_t i = 0; i < first.nodes.size(); ++i) add_node(i);
  for (const std::string& name : outputs) {
    Ids ids;
    for (size_t r = 0; r < kRecordings; ++r) ids[r] = traces_[r].outputs.at(name);
    program_.outputs.push_back({name, number(ids, "the output '" + name + "'")});
  }
  reduce_unit();
  return std::move(program_);
}

}  // namespace

ExportedProgram generalize(const std::vector<Trace>& traces, const std::vector<TensorSpec>& inputs,
                           const std::vector<std::string>& outputs, int64_t unit) {
  TP_ASSERT(traces.size() == kRecordings);
  return Generalization(traces, unit).run(inputs, outputs);
}

}  // namespace tensorpack::detail
