// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/decisions.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <string>
#include <unordered_set>

namespace tensorpack {
namespace {

bool is_on_host(const Value& value) { return value.options.device().is_cpu(); }

bool is_answer(const Value& value) {
  return value.kind == ValueKind::kComputed && is_on_host(value) && value.sizes.empty() &&
         value.options.dtype() == c10::kBool;
}

// Finds the operators that decide, by the memory that they have to do with, and takes them out.
class Split {
 public:
  explicit Split(Trace& trace)
      : trace_(trace), decides_(trace.nodes.size(), 0), delivers_(trace.nodes.size(), 0) {
    for (size_t i = 0; i < trace.nodes.size(); ++i) {
      const Node& node = trace.nodes[i];
      delivers_[i] = is_delivery(node);
      const ValueId asked = delivers_[i] ? node.arguments[0].ids[0] : condition_of(node);
      if (asked != kNoValue && is_answer(trace.values[asked])) add(asked);
    }
    while (grow()) {
    }
  }

  bool is_possible() const {
    return !memory_.empty() && can_go_first() && nobody_reads_earlier_values() &&
           gives_answers_alone();
  }

  // The operators that decide, which name their answers "0", "1" and so on; the rest stays.
  Trace take_out() {
    Trace deciding = trace_;
    deciding.inputs.clear();
    deciding.outputs.clear();
    const auto answer = [&](ValueId question, ValueId wanted) {
      deciding.outputs.emplace(std::to_string(deciding.outputs.size()), question);
      trace_.inputs.push_back(wanted);
      trace_.values[wanted].kind = ValueKind::kInput;
    };
    std::unordered_set<ValueId> answered;
    for (size_t i = 0; i < trace_.nodes.size(); ++i) {
      const Node& node = trace_.nodes[i];
      if (decides_[i]) continue;
      if (delivers_[i]) {
        answer(node.arguments[0].ids[0], node.results[0].ids[0]);
        continue;
      }
      node.for_each_argument([&](ValueId id) {
        if (is_made_here(id) && answered.insert(id).second) answer(id, id);
      });
    }
    std::vector<char> stays(decides_.size());
    std::vector<char> goes(decides_.size());
    for (size_t i = 0; i < decides_.size(); ++i) {
      stays[i] = !decides_[i];
      goes[i] = decides_[i] || delivers_[i];
    }
    deciding.erase_nodes(stays);
    trace_.erase_nodes(goes);
    return deciding;
  }

 private:
  void add(ValueId id) { memory_.insert(trace_.values[id].storage); }

  bool is_made_here(ValueId id) const {
    const int32_t producer = trace_.values[id].producer;
    return producer >= 0 && decides_[static_cast<size_t>(producer)];
  }

  // A copy of an answer for a device.
  bool is_delivery(const Node& node) const {
    return node.op.operator_name().name == "aten::_to_copy" && node.results[0].ids[0] != kNoValue &&
           is_answer(trace_.values[node.arguments[0].ids[0]]) &&
           !is_on_host(trace_.values[node.results[0].ids[0]]);
  }

  // Adds what makes or writes the memory, and the memory of all that has to do with. From the last
  // to the first, so that once is mostly enough; false if nothing is missing.
  bool grow() {
    bool grows = false;
    for (size_t i = trace_.nodes.size(); i-- > 0;) {
      const Node& node = trace_.nodes[i];
      if (decides_[i] || !touches_memory(node, static_cast<int32_t>(i))) continue;
      decides_[i] = 1;
      node.for_each_argument([&](ValueId id) { add(id); });
      node.for_each_result([&](ValueId id) { add(id); });
      grows = true;
    }
    return grows;
  }

  bool touches_memory(const Node& node, int32_t position) const {
    bool touches = std::any_of(node.writes.begin(), node.writes.end(),
                               [&](StorageId storage) { return memory_.contains(storage); });
    node.for_each_result([&](ValueId id) {
      const Value& value = trace_.values[id];
      touches |= value.producer == position && memory_.contains(value.storage);
    });
    return touches;
  }

  bool can_go_first() const {
    for (size_t i = 0; i < trace_.nodes.size(); ++i) {
      const Node& node = trace_.nodes[i];
      if (!decides_[i]) continue;
      bool can = !node.is_random && !node.is_collective && !node.changes_metadata;
      const auto look = [&](ValueId id) {
        const Value& value = trace_.values[id];
        can &= is_on_host(value) && value.kind != ValueKind::kInput;
      };
      node.for_each_argument(look);
      node.for_each_result(look);
      if (!can) return false;
    }
    return true;
  }

  // What is written first must not be read before it would have been written.
  bool nobody_reads_earlier_values() const {
    std::unordered_set<StorageId> written_later;
    for (size_t i = trace_.nodes.size(); i-- > 0;) {
      const Node& node = trace_.nodes[i];
      if (decides_[i]) {
        written_later.insert(node.writes.begin(), node.writes.end());
        continue;
      }
      bool reads = false;
      node.for_each_argument(
          [&](ValueId id) { reads |= written_later.contains(trace_.values[id].storage); });
      if (reads) return false;
    }
    return true;
  }

  bool gives_answers_alone() const {
    bool alone = true;
    for (size_t i = 0; i < trace_.nodes.size(); ++i) {
      if (decides_[i]) continue;
      trace_.nodes[i].for_each_argument([&](ValueId id) {
        if (is_made_here(id)) alone &= is_answer(trace_.values[id]);
      });
    }
    for (const auto& [name, id] : trace_.outputs) alone &= !is_made_here(id);
    return alone;
  }

  Trace& trace_;
  std::vector<char> decides_;             // by node
  std::vector<char> delivers_;            // by node
  std::unordered_set<StorageId> memory_;  // of what decides, and of all it is made from
};

}  // namespace

ValueId condition_of(const Node& node) {
  if (!node.is_collective || node.arguments.empty()) return kNoValue;
  const Argument& last = node.arguments.back();
  return last.kind == Argument::Kind::kTensor ? last.ids[0] : kNoValue;
}

Decisions::Decisions(Trace& trace) {
  Split split(trace);
  if (!split.is_possible()) return;
  const Trace deciding = split.take_out();
  size_ = deciding.outputs.size();
  std::vector<std::string> answers;
  for (size_t i = 0; i < size_; ++i) answers.push_back(std::to_string(i));
  program_ = std::make_unique<Program>(deciding, answers);
}

std::vector<bool> Decisions::make() {
  if (!program_) return {};
  std::vector<bool> answers;
  for (const at::Tensor& answer : program_->run({})) answers.push_back(answer.item<bool>());
  return answers;
}

}  // namespace tensorpack
