// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/detail/program_function.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/export/detail/allowed_operators.h"
#include "tensorpack/export/detail/program_uses.h"
#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {
namespace {

using Kind = c10::TypeKind;

c10::OperatorHandle operator_of(const ExportedNode& node) {
  const auto found = try_find_operator(node.op);
  require(
      found.has_value(),
      "{} is not known here: it was exported by another version of libtorch, or needs a library "
      "of operators",
      tensorpack::describe(node));
  return *found;
}

bool is_integer(Kind kind) { return kind == Kind::IntType || kind == Kind::SymIntType; }

bool is_optional_tensor(const c10::TypePtr& type) {
  return type->kind() == Kind::OptionalType &&
         type->expectRef<c10::OptionalType>().getElementType()->kind() == Kind::TensorType;
}

bool is_enumeration(Kind kind) {
  return kind == Kind::ScalarTypeType || kind == Kind::LayoutType || kind == Kind::MemoryFormatType;
}

// libtorch takes enumerators as integers and does not check them.
bool is_enumerator(const ExportedArgument& value, Kind kind) {
  const auto* number = std::get_if<Extent>(&value);
  if (number == nullptr || !number->is_fixed()) return false;
  const int64_t last = kind == Kind::ScalarTypeType ? static_cast<int64_t>(c10::kBFloat16)
                       : kind == Kind::LayoutType
                           ? static_cast<int64_t>(c10::kStrided)
                           : static_cast<int64_t>(c10::MemoryFormat::ChannelsLast3d);
  if (number->offset < 0 || number->offset > last) return false;
  return kind != Kind::ScalarTypeType ||
         !c10::isQIntType(static_cast<c10::ScalarType>(number->offset));
}

// Whether an argument of this type can be made of the value.
bool fits(const ExportedArgument& value, const c10::TypePtr& type) {
  const Kind kind = type->kind();
  if (kind == Kind::OptionalType) {
    return std::holds_alternative<std::monostate>(value) ||
           fits(value, type->expectRef<c10::OptionalType>().getElementType());
  }
  if (is_enumeration(kind)) return is_enumerator(value, kind);
  if (kind == Kind::ListType) {
    const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
    if (element->kind() == Kind::TensorType || is_optional_tensor(element)) {
      return std::holds_alternative<ValuesArgument>(value);
    }
    const auto* extents = std::get_if<std::vector<Extent>>(&value);
    if (extents != nullptr) return extents->empty() || is_integer(element->kind());
    return (std::holds_alternative<std::vector<double>>(value) &&
            element->kind() == Kind::FloatType) ||
           (std::holds_alternative<std::vector<bool>>(value) && element->kind() == Kind::BoolType);
  }
  const bool is_number = kind == Kind::NumberType;
  if (std::holds_alternative<ValueArgument>(value)) return kind == Kind::TensorType;
  if (std::holds_alternative<std::monostate>(value)) return kind == Kind::TensorType;
  if (std::holds_alternative<bool>(value)) return kind == Kind::BoolType || is_number;
  if (std::holds_alternative<Extent>(value)) return is_integer(kind) || is_number;
  if (std::holds_alternative<double>(value)) return kind == Kind::FloatType || is_number;
  if (std::holds_alternative<std::string>(value)) return kind == Kind::StringType;
  return std::holds_alternative<DeviceOfProgram>(value) && kind == Kind::DeviceObjType;
}

void check_operator(const ExportedNode& node, const c10::OperatorHandle& op,
                    const std::vector<std::string>& more_operators) {
  const bool is_named =
      std::find(more_operators.begin(), more_operators.end(), node.op) != more_operators.end();
  require(is_named || is_allowed(op), "{} is not an operator that an exported program may have",
          tensorpack::describe(node));
  const auto& returns = op.schema().returns();
  require(returns.size() == node.results.size(), "{} has {} here and {} in the file",
          tensorpack::describe(node), counted(std::ssize(returns), "result"), node.results.size());
  for (size_t i = 0; i < returns.size(); ++i) {
    const Kind kind = returns[i].type()->kind();
    require(node.results[i].ids.empty() ||
                kind == (node.results[i].is_list ? Kind::ListType : Kind::TensorType),
            "result {} of {} is of another type here", i, tensorpack::describe(node));
  }
}

// A program never changes its constants. Small ones are handed out as copies, which have no owner
// when the function has returned, so that a recording folds what is computed from them.
at::Tensor constant(const at::Tensor& tensor) {
  constexpr size_t kSmall = 1 << 16;
  if (tensor.nbytes() > kSmall) return tensor;
  const Unwatched unwatched;
  return tensor.clone();
}

}  // namespace

struct ProgramFunction::Call {
  int64_t batch;
  std::vector<at::Tensor> values;
};

ProgramFunction::ProgramFunction(const ExportedProgram& program, c10::Device device,
                                 const std::vector<std::string>& more_operators)
    : device_(device),
      unit_(program.unit),
      value_count_(program.values.size()),
      inputs_(program.inputs),
      outputs_(program.outputs) {
  for (const ExportedConstant& constant : program.constants) {
    if (constant.tensor.defined()) {
      tensors_.push_back({constant.id, constant.tensor.to(device)});
    } else {
      numbers_.push_back({constant.id, constant.number});
    }
  }
  for (const ExportedNode& node : program.nodes) steps_.push_back(make_step(node, more_operators));
  // A model that changes between calls is not the one that was exported.
  const ProgramUses uses(program);
  for (const ExportedConstant& constant : program.constants) {
    require(!uses.is_written(constant.id), "it writes to its constant '{}'", constant.name);
  }
  find_releases();
}

ProgramFunction::Step ProgramFunction::make_step(const ExportedNode& node,
                                                 const std::vector<std::string>& more_operators) {
  const c10::OperatorHandle op = operator_of(node);
  check_operator(node, op, more_operators);
  Step step{.op = op,
            .arguments = {},
            .results = node.results,
            .grad_mode = node.grad_mode,
            .description = tensorpack::describe(node),
            .releases = {}};
  size_t given = 0;
  for (const c10::Argument& expected : op.schema().arguments()) {
    const auto found = node.arguments.find(expected.name());
    if (found != node.arguments.end()) {
      ++given;
      require(fits(found->second, expected.real_type()), "the argument '{}' of {} is not a {}",
              expected.name(), step.description, expected.type()->str());
      require(expected.name() != "pin_memory" || found->second != ExportedArgument(true),
              "{} asks for pinned memory, which an exported program may not have",
              step.description);
      step.arguments.push_back({expected.type(), found->second});
    } else {
      require(expected.default_value().has_value(), "{} has no argument '{}', which it needs here",
              step.description, expected.name());
      step.arguments.push_back({nullptr, {}});
    }
  }
  require(given == node.arguments.size(), "{} has {} of which {} are known here", step.description,
          counted(std::ssize(node.arguments), "argument"), given);
  return step;
}

void ProgramFunction::find_releases() {
  std::vector<char> is_needed(value_count_, 0);
  for (const ExportedOutput& output : outputs_) is_needed[output.id] = 1;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    const auto use = [&](ExportedId id) {
      if (id == kNoExportedValue || is_needed[id]) return;
      is_needed[id] = 1;
      step->releases.push_back(id);
    };
    for (const Argument& argument : step->arguments) {
      if (const auto* value = std::get_if<ValueArgument>(&argument.value)) use(value->id);
      if (const auto* values = std::get_if<ValuesArgument>(&argument.value)) {
        for (ExportedId id : values->ids) use(id);
      }
    }
    for (const ExportedResult& result : step->results) {
      for (ExportedId id : result.ids) use(id);
    }
  }
}

int64_t ProgramFunction::batch_of(const std::vector<at::Tensor>& inputs) const {
  int64_t batch = -1;
  std::string from;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = inputs_[i].spec;
    for (size_t dim = 0; dim < spec.shape.size(); ++dim) {
      if (spec.shape[dim] != -1) continue;
      const int64_t size = inputs[i].size(static_cast<int64_t>(dim));
      TP_CHECK(batch == -1 || batch == size, "exported model",
               "the input '{}' has a batch of {}, the input '{}' one of {}. Give both the same.",
               from, batch, spec.name, size);
      batch = size;
      from = spec.name;
    }
  }
  return batch;
}

void ProgramFunction::run(const Step& step, Call& call) const {
  const auto tensor = [&](ExportedId id) {
    if (id == kNoExportedValue) return at::Tensor();
    TP_CHECK(call.values[id].defined(), "exported model",
             "{} is given nothing where it needs a tensor. "
             "The file does not fit this version of libtorch.",
             step.description);
    return call.values[id];
  };
  const auto extent = [&](const Extent& e) { return evaluate(e, call.batch, unit_); };
  const auto list_of = [&](const ExportedArgument& value, const c10::TypePtr& type) -> c10::IValue {
    const c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
    if (const auto* values = std::get_if<ValuesArgument>(&value)) {
      if (!is_optional_tensor(element)) {
        c10::List<at::Tensor> list;
        for (ExportedId id : values->ids) list.push_back(tensor(id));
        return list;
      }
      c10::List<c10::optional<at::Tensor>> list;
      for (ExportedId id : values->ids) {
        list.push_back(id == kNoExportedValue ? c10::optional<at::Tensor>() : tensor(id));
      }
      return list;
    }
    if (element->kind() == Kind::FloatType) {
      const auto* items = std::get_if<std::vector<double>>(&value);
      return items == nullptr ? c10::List<double>() : c10::List<double>(*items);
    }
    if (element->kind() == Kind::BoolType) {
      c10::List<bool> list;
      if (const auto* items = std::get_if<std::vector<bool>>(&value)) {
        for (bool item : *items) list.push_back(item);
      }
      return list;
    }
    c10::List<int64_t> list;
    for (const Extent& item : std::get<std::vector<Extent>>(value)) list.push_back(extent(item));
    return list;
  };
  const auto value_of = [&](const ExportedArgument& value, c10::TypePtr type) -> c10::IValue {
    if (type->kind() == Kind::OptionalType) {
      if (std::holds_alternative<std::monostate>(value)) return {};
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
    if (type->kind() == Kind::ListType) return list_of(value, type);
    if (const auto* v = std::get_if<ValueArgument>(&value)) return tensor(v->id);
    if (const auto* v = std::get_if<bool>(&value)) return *v;
    if (const auto* v = std::get_if<Extent>(&value)) return extent(*v);
    if (const auto* v = std::get_if<double>(&value)) return *v;
    if (const auto* v = std::get_if<std::string>(&value)) return *v;
    if (std::holds_alternative<DeviceOfProgram>(value)) return device_;
    return at::Tensor();
  };

  torch::jit::Stack stack;
  const auto& schema = step.op.schema().arguments();
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    const Argument& argument = step.arguments[i];
    stack.push_back(argument.type == nullptr ? *schema[i].default_value()
                                             : value_of(argument.value, argument.type));
  }
  if (const auto reason = reason_not_callable(step.op, stack)) {
    throw make_error(
        "exported model",
        "{} cannot be run: {}. The data does not fit the model, or the file is damaged "
        "or crafted.",
        step.description, *reason);
  }
  // t_() and the like change the tensor they are given: give them one of their own.
  if (changes_metadata(step.op)) stack[0] = at::alias(stack[0].toTensor());
  const c10::AutoGradMode grad_mode(step.grad_mode);
  make_harmless(step.op, stack);
  step.op.callBoxed(&stack);
  // A crafted file must not show what was in that memory before.
  if (leaves_result_uninitialised(step.op.operator_name().name)) stack[0].toTensor().zero_();
  for (size_t i = 0; i < step.results.size(); ++i) {
    const ExportedResult& result = step.results[i];
    if (result.ids.empty()) continue;
    const auto tensors =
        result.is_list ? stack[i].toTensorVector() : std::vector<at::Tensor>{stack[i].toTensor()};
    TP_CHECK(tensors.size() == result.ids.size(), "exported model",
             "{} gave {} instead of {}. The file does not fit this version of libtorch.",
             step.description, counted(std::ssize(tensors), "tensor"), result.ids.size());
    for (size_t k = 0; k < tensors.size(); ++k) {
      if (result.ids[k] != kNoExportedValue) call.values[result.ids[k]] = tensors[k];
    }
  }
  for (ExportedId id : step.releases) call.values[id] = at::Tensor();
}

std::vector<at::Tensor> ProgramFunction::operator()(const std::vector<at::Tensor>& inputs) const {
  TP_ASSERT(inputs.size() == inputs_.size());
  Call call{batch_of(inputs), std::vector<at::Tensor>(value_count_)};
  for (size_t i = 0; i < inputs.size(); ++i) call.values[inputs_[i].id] = inputs[i];
  for (const Tensor& tensor : tensors_) call.values[tensor.id] = constant(tensor.value);
  for (const Number& number : numbers_) {
    const at::Scalar scalar = std::visit(
        [&](const auto& value) -> at::Scalar {
          if constexpr (std::is_same_v<std::decay_t<decltype(value)>, Extent>) {
            return evaluate(value, call.batch, unit_);
          } else {
            return value;
          }
        },
        number.value);
    call.values[number.id] = at::native::wrapped_scalar_tensor(scalar);
  }
  for (const Step& step : steps_) {
    try {
      run(step, call);
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw make_error("exported model", "{}: {}", step.description, tensorpack::describe(error));
    }
  }
  std::vector<at::Tensor> results;
  for (const ExportedOutput& output : outputs_) results.push_back(call.values[output.id]);
  return results;
}

}  // namespace tensorpack::detail
