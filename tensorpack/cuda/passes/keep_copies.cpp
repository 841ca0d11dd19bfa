// SPDX-License-Identifier: Apache-2.0
// Note [Keeping copies]
// A cast of weights to 16 bits that is read by a step before its update may be kept from one step
// to the next: the update writes it, see Note [Kept copies]. That holds for variables that are cast
// as they lie, and for rows that are put together of several. The variable must be written by the
// update alone, and the copy be seen by nobody else: then nothing tells a copy that was kept from
// one that was made at the beginning of the step.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"
#include "tensorpack/graph/kept_copies.h"

namespace tensorpack::cuda {
namespace {

// The variables that make one result of a cast, row by row if there are several.
struct CastOfVariables {
  ValueId result = kNoValue;
  std::vector<ValueId> variables = {};
};

// Where a variable stands in the list of an update.
struct UpdatePlace {
  int32_t node = -1;
  int64_t place = 0;
};

// What an update is to write besides.
struct CopiesOfUpdate {
  std::vector<ValueId> copies = {};
  std::vector<int64_t> places = {};  // of their variables
};

std::optional<c10::OperatorHandle> with_copies(const Node& update) {
  if (is_op(update, "tensorpack::sgd_")) return sgd_and_copies_operator();
  if (is_op(update, "tensorpack::adam_")) return adam_and_copies_operator();
  return std::nullopt;
}

bool is_kept_type(const Value& value) {
  return value.options.dtype() == at::kBFloat16 || value.options.dtype() == at::kHalf;
}

std::vector<CastOfVariables> results_of_cast(const Node& node) {
  if (is_op(node, "aten::_to_copy")) return {{result_at(node, 0), {tensor_at(node, 0)}}};
  std::vector<CastOfVariables> results;
  if (!is_op(node, "tensorpack::cast_together")) return results;
  auto next = node.arguments[0].ids.begin();
  const std::vector<int64_t> parts = node.arguments[2].literal.toIntVector();
  for (size_t i = 0; i < node.results[0].ids.size(); ++i) {
    const auto end = next + (parts.empty() ? 1 : parts[i]);
    results.push_back({node.results[0].ids[i], {next, end}});
    next = end;
  }
  return results;
}

void append_storages(const Trace& trace, const std::vector<ValueId>& ids,
                     std::vector<StorageId>& storages) {
  for (ValueId id : ids) storages.push_back(trace.values[id].storage);
}

class KeepCopies {
 public:
  KeepCopies(Trace& trace, c10::DeviceType device)
      : trace_(trace), editor_(trace), device_(device) {}

  int run() {
    for (int32_t i = 0; i < editor_.size(); ++i) look_at_cast(i);
    for (const auto& [update, kept] : updates_) add_to_update(update, kept);
    editor_.commit();
    return static_cast<int>(variables_.size());
  }

 private:
  // Has the results of a cast that can be kept made by an operator of their own.
  void look_at_cast(int32_t position) {
    std::vector<CastOfVariables> left;
    std::vector<ValueId> copies, variables;
    for (const CastOfVariables& cast : results_of_cast(editor_.node(position))) {
      if (!can_be_kept(cast, position)) {
        left.push_back(cast);
        continue;
      }
      const std::vector<ValueId> parts = keep(cast);
      copies.insert(copies.end(), parts.begin(), parts.end());
      variables.insert(variables.end(), cast.variables.begin(), cast.variables.end());
    }
    if (copies.empty()) return;
    Node making = make_node(trace_, make_copies_operator(),
                            {Argument{Argument::Kind::kTensorList, copies, {}},
                             Argument{Argument::Kind::kTensorList, variables, {}}},
                            {}, editor_.node(position).scope);
    append_storages(trace_, copies, making.writes);
    editor_.insert(position, std::move(making));
    if (left.empty()) {
      editor_.remove(position);
    } else {
      leave(position, left);
    }
  }

  // What is left of a cast that many make together.
  void leave(int32_t position, const std::vector<CastOfVariables>& left) {
    Node& node = editor_.edit(position);
    std::vector<int64_t> parts;
    node.arguments[0].ids.clear();
    node.results[0].ids.clear();
    node.reads.clear();
    for (const CastOfVariables& cast : left) {
      std::vector<ValueId>& read = node.arguments[0].ids;
      read.insert(read.end(), cast.variables.begin(), cast.variables.end());
      parts.push_back(static_cast<int64_t>(cast.variables.size()));
      node.results[0].ids.push_back(cast.result);
    }
    append_storages(trace_, node.arguments[0].ids, node.reads);
    node.arguments[2] = literal_argument(std::move(parts));
  }

  bool can_be_kept(const CastOfVariables& cast, int32_t position) const {
    if (cast.result == kNoValue) return false;
    const Value& copy = editor_.value(cast.result);
    if (copy.kind != ValueKind::kComputed || copy.producer != position || !is_kept_type(copy) ||
        copy.options.device().type() != device_ || !editor_.writers(copy.storage).empty()) {
      return false;
    }
    if (cast.variables.size() > 1 && !is_contiguous(copy)) return false;
    std::set<ValueId> seen;
    int32_t first_update = editor_.size();
    for (ValueId id : cast.variables) {
      const std::optional<UpdatePlace> place = update_of(id);
      const Value& variable = editor_.value(id);
      if (!place || variables_.contains(id) || !seen.insert(id).second ||
          variable.options.device() != copy.options.device() || !has_type_of(place->node, copy) ||
          variable.strides != copy.strides) {
        return false;
      }
      first_update = std::min(first_update, place->node);
    }
    return is_read_before(copy.storage, position, first_update);
  }

  // The only node that writes the variable, if it is an update.
  std::optional<UpdatePlace> update_of(ValueId id) const {
    const Value& variable = editor_.value(id);
    if (variable.kind != ValueKind::kVariable || variable.options.dtype() != at::kFloat ||
        variable.tensor.is_inference() || !variable.tensor.is_non_overlapping_and_dense() ||
        !is_alone_in_its_memory(variable)) {
      return std::nullopt;
    }
    const std::vector<int32_t> writers = editor_.writers(variable.storage);
    if (writers.size() != 1 || !with_copies(editor_.node(writers[0]))) return std::nullopt;
    const Node& update = editor_.node(writers[0]);
    int64_t uses = 0;
    update.for_each_argument(
        [&](ValueId used) { uses += editor_.value(used).storage == variable.storage; });
    const std::vector<ValueId>& updated = update.arguments[0].ids;
    const auto found = std::find(updated.begin(), updated.end(), id);
    if (uses != 1 || found == updated.end()) return std::nullopt;
    return UpdatePlace{writers[0], found - updated.begin()};
  }

  // Its writes are counted for it, and not for another variable.
  bool is_alone_in_its_memory(const Value& variable) const {
    const std::vector<ValueId>& values = editor_.values_in(variable.storage);
    const auto variables = std::count_if(values.begin(), values.end(), [&](ValueId id) {
      return editor_.value(id).kind == ValueKind::kVariable;
    });
    return variables == 1 &&
           variable.storage_bytes == elements_of(variable) * static_cast<int64_t>(sizeof(float));
  }

  // A kernel writes copies of one type.
  bool has_type_of(int32_t update, const Value& copy) const {
    const auto found = updates_.find(update);
    return found == updates_.end() ||
           editor_.value(found->second.copies[0]).options.dtype() == copy.options.dtype();
  }

  // Through this value or views of it, by nobody but nodes between the two.
  bool is_read_before(StorageId storage, int32_t cast, int32_t update) const {
    if (update <= cast) return false;
    const std::vector<ValueId>& values = editor_.values_in(storage);
    return std::all_of(values.begin(), values.end(), [&](ValueId id) {
      const std::vector<int32_t>& readers = editor_.readers(id);
      return !editor_.is_output(id) && (readers.empty() || readers.back() < update);
    });
  }

  // Makes a constant of the result; returns where in it the copy of each variable goes.
  std::vector<ValueId> keep(const CastOfVariables& cast) {
    Value& value = trace_.values[cast.result];
    const at::Tensor whole = at::empty_strided(value.sizes, value.strides, value.options);
    value.kind = ValueKind::kConstant;
    value.producer = -1;
    value.tensor = whole;
    std::vector<ValueId> copies;
    int64_t row = 0;
    for (ValueId id : cast.variables) {
      const std::vector<int64_t> sizes = editor_.value(id).sizes;
      copies.push_back(cast.variables.size() == 1
                           ? cast.result
                           : add_part(cast.result, whole.narrow(0, row, sizes[0])));
      if (!sizes.empty()) row += sizes[0];
      const UpdatePlace place = *update_of(id);
      updates_[place.node].copies.push_back(copies.back());
      updates_[place.node].places.push_back(place.place);
      variables_.insert(id);
    }
    return copies;
  }

  ValueId add_part(ValueId whole, const at::Tensor& part) {
    Value value = editor_.value(whole);
    value.tensor = part;
    value.sizes = part.sizes().vec();
    value.strides = part.strides().vec();
    return editor_.add_value(std::move(value));
  }

  void add_to_update(int32_t position, const CopiesOfUpdate& kept) {
    Node& update = editor_.edit(position);
    update.op = *with_copies(update);
    update.keys = {};
    update.arguments.push_back({Argument::Kind::kTensorList, kept.copies, {}});
    update.arguments.push_back(literal_argument(kept.places));
    append_storages(trace_, kept.copies, update.reads);
    append_storages(trace_, kept.copies, update.writes);
  }

  Trace& trace_;
  TraceEditor editor_;
  const c10::DeviceType device_;
  std::map<int32_t, CopiesOfUpdate> updates_;
  std::set<ValueId> variables_;  // that have copies
};

}  // namespace

int keep_copies(Trace& trace, c10::DeviceType device) { return KeepCopies(trace, device).run(); }

}  // namespace tensorpack::cuda
