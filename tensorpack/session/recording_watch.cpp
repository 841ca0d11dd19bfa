// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/recording_watch.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "tensorpack/graph/tensor_key.h"

namespace tensorpack {

RecordingWatch::RecordingWatch(Graph& graph, int64_t announced_changes, const Recording& recording)
    : graph_(graph),
      announced_changes_(announced_changes),
      every_run_until_(std::min(
          kEveryRun, kEveryOperator / std::max<int64_t>(std::ssize(recording.trace.nodes), 1))) {
  look_at(recording);
}

bool RecordingWatch::sees_change() const {
  return std::any_of(captured_.begin(), captured_.end(),
                     [](const CapturedTensor& tensor) { return tensor.has_changed(); }) ||
         std::any_of(variables_.begin(), variables_.end(), [](const UsedVariable& variable) {
           return variable.tensor.requires_grad() != variable.requires_grad;
         });
}

bool RecordingWatch::sees_moved_variable() const {
  return std::any_of(variables_.begin(), variables_.end(), [](const UsedVariable& variable) {
    return !is_same_memory(variable.tensor, variable.recorded);
  });
}

void RecordingWatch::settle() {
  std::erase_if(captured_, [](const CapturedTensor& tensor) { return tensor.has_changed(); });
}

void RecordingWatch::renew(int64_t announced_changes, const Recording& recording) {
  announced_changes_ = announced_changes;
  was_wrong_ = false;
  look_at(recording);
}

void RecordingWatch::postpone() {
  compared_before_ = next_run();
  while (due_ <= next_run()) due_ = std::exchange(due_after_, due_ + due_after_);
  settle();
}

void RecordingWatch::count_on_from(const RecordingWatch& other) {
  runs_ = other.runs_;
  compared_before_ = other.compared_before_;
  every_run_until_ = other.every_run_until_;
  due_ = other.due_;
  due_after_ = other.due_after_;
}

void RecordingWatch::look_at(const Recording& recording) {
  captured_ = recording.captured;
  variables_.clear();
  std::unordered_set<StorageId> used;
  for (const Node& node : recording.trace.nodes) used.insert(node.reads.begin(), node.reads.end());
  for (const Value& value : recording.trace.values) {
    if (value.kind != ValueKind::kVariable || !used.contains(value.storage)) continue;
    const at::Tensor& tensor = graph_.variables().at(value.name).tensor;
    variables_.push_back(
        {tensor, tensor.has_storage() ? value.tensor : tensor, value.requires_grad});
  }
}

}  // namespace tensorpack
