// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/operator_facts.h"

#include <map>
#include <set>

namespace tensorpack {
namespace {

constexpr const char* kHostRead =
    "brings a tensor's value to the host (.item(), a branch or a loop on a tensor), which a "
    "recorded program cannot repeat. Keep the value in tensors (torch::where instead of if; "
    "tensorpack::one_hot), or run with SessionOptions{.executor = ExecutorKind::kEager}";
constexpr const char* kDynamicShape =
    "makes a tensor whose shape depends on the data, which a recorded program cannot repeat. Use "
    "a form of fixed shape (torch::where, masked_fill, multiplication by a mask; "
    "tensorpack::masked_mean), or run with SessionOptions{.executor = ExecutorKind::kEager}";

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

bool is_indexing(const std::string& name) {
  return starts_with(name, "aten::index") || starts_with(name, "aten::_index") ||
         starts_with(name, "aten::_unsafe_index");
}

// Results with as many elements as the data says. Some of the family have no tag that says so.
bool has_dynamic_shape(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return op.hasTag(at::Tag::dynamic_output_shape) || starts_with(name, "aten::_unique") ||
         starts_with(name, "aten::unique");
}

bool returns_tensors_only(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const auto kind = result.type()->kind();
    const bool tensors = kind == c10::TypeKind::TensorType ||
                         (kind == c10::TypeKind::ListType &&
                          result.type()->containedType(0)->kind() == c10::TypeKind::TensorType);
    if (!tensors) return false;
  }
  return true;
}

}  // namespace

const std::vector<int>& undeclared_writes(const std::string& op_name,
                                          c10::ArrayRef<c10::IValue> arguments) {
  static const std::vector<int> none;
  static const std::map<std::string, std::vector<int>> table = {
      {"aten::native_batch_norm", {3, 4}},  // the running statistics
      {"aten::cudnn_batch_norm", {3, 4}},
      {"aten::miopen_batch_norm", {3, 4}},
      {"aten::rrelu_with_noise", {1}},
      {"aten::mkldnn_rnn_layer_backward", {22}},  // uses its workspace up
  };
  auto found = table.find(op_name);
  if (found == table.end()) return none;
  // In prediction the running statistics are only read, and a layer nobody needs can be dropped.
  constexpr size_t kTraining = 5;
  const bool is_prediction = op_name.ends_with("batch_norm") && arguments[kTraining].isBool() &&
                             !arguments[kTraining].toBool();
  return is_prediction ? none : found->second;
}

bool reads_only_metadata(const std::string& op_name) {
  static const std::set<std::string> table = {
      "aten::size",
      "aten::stride",
      "aten::sym_size",
      "aten::sym_stride",
      "aten::sym_numel",
      "aten::sym_storage_offset",
      "aten::is_same_size",
      "aten::_has_same_storage_numel",
      "aten::_version",
      "aten::is_contiguous",
      "aten::dim",
      "aten::numel",
      "aten::_has_compatible_shallow_copy_type",
      "aten::_nested_tensor_size",
      "aten::_use_cudnn_ctc_loss",
      "aten::_use_cudnn_rnn_flatten_weight",
      "aten::_fused_sdp_choice",
      "aten::result_type",
      "aten::can_cast",
      "aten::promote_types",
      "aten::is_floating_point",
      "aten::is_complex",
  };
  return table.contains(op_name);
}

bool ignores_contents(const std::string& op_name) {
  static const std::set<std::string> table = {
      "aten::zeros_like", "aten::ones_like", "aten::full_like",
      "aten::new_zeros",  "aten::new_ones",  "aten::new_full",
  };
  return table.contains(op_name);
}

bool leaves_result_uninitialised(const std::string& op_name) {
  return starts_with(op_name, "aten::empty") || starts_with(op_name, "aten::new_empty");
}

bool overwrites_first_argument(const std::string& op_name) {
  static const std::set<std::string> table = {
      "aten::copy_",       "aten::fill_",      "aten::zero_",   "aten::uniform_",
      "aten::normal_",     "aten::random_",    "aten::cauchy_", "aten::bernoulli_",
      "aten::log_normal_", "aten::geometric_", "aten::set_",    "aten::exponential_",
      "aten::resize_",     "aten::resize_as_", "aten::detach_", "aten::_foreach_zero_",
  };
  return table.contains(op_name);
}

std::optional<size_t> generator_argument(const c10::OperatorHandle& op) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].type()->str().find("Generator") != std::string::npos) return i;
  }
  return std::nullopt;
}

bool draws_random_numbers(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::nondeterministic_seeded) || generator_argument(op).has_value();
}

bool is_collective(const c10::OperatorHandle& op) {
  return starts_with(op.operator_name().name, "tensorpack::exchange_");
}

bool changes_metadata(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return op.hasTag(at::Tag::inplace_view) || name == "aten::set_" || name == "aten::resize_" ||
         name == "aten::resize_as_";
}

std::optional<std::string> reason_not_recordable(const c10::OperatorHandle& op, bool has_mask) {
  const std::string& name = op.operator_name().name;
  const c10::FunctionSchema& schema = op.schema();
  // With several results, some may be sizes that are known without the data (flash attention).
  if (schema.returns().size() == 1 && !returns_tensors_only(schema) && !reads_only_metadata(name)) {
    return kHostRead;
  }
  if (op.hasTag(at::Tag::data_dependent_output)) return kHostRead;
  // Tagged in 2.x, but its shapes follow from lengths that are plain numbers in this overload.
  if (name == "aten::_ctc_loss" && op.operator_name().overload_name.empty()) return std::nullopt;
  if (has_dynamic_shape(op) && (!is_indexing(name) || has_mask)) return kDynamicShape;
  return std::nullopt;
}

}  // namespace tensorpack
