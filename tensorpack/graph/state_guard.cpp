// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/state_guard.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/operator_facts.h"

namespace tensorpack {

// Saves variables before operators write them.
class StateGuard::Watch final : public OperatorWatch {
 public:
  explicit Watch(Graph& graph) : graph_(graph) {}

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    save_what_is_written(op, *stack);
    pass_on(op, below, stack);
  }

  void save(const at::Tensor& tensor) {
    for (const Variable* variable : graph_.variables().in_storage_of(tensor)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (std::find(touched.begin(), touched.end(), variable) != touched.end()) continue;
      touched.push_back(variable);
      state.save(variable->tensor);
    }
  }

  SavedState state;
  std::vector<const Variable*> touched;

 private:
  void save_what_is_written(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
    const auto& arguments = op.schema().arguments();
    const auto values = torch::jit::last(stack, arguments.size());
    const std::vector<int>& undeclared = undeclared_writes(op.operator_name().name, values);
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* alias = arguments[i].alias_info();
      const bool writes =
          (alias != nullptr && alias->isWrite()) ||
          std::find(undeclared.begin(), undeclared.end(), static_cast<int>(i)) != undeclared.end();
      if (!writes) continue;
      if (values[i].isTensor()) {
        save(values[i].toTensor());
      } else if (values[i].isTensorList()) {
        for (const at::Tensor& tensor : values[i].toTensorVector()) save(tensor);
      }
    }
  }

  Graph& graph_;
  std::mutex mutex_;  // autograd may have threads of its own
};

namespace {

std::recursive_mutex& preparation_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

PreparationLock lock_preparation() { return PreparationLock(preparation_mutex()); }

// By looking again and again: the thread sanitizer does not see locks with a time limit.
PreparationLock try_lock_preparation(std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kTick{1};
  const auto end = std::chrono::steady_clock::now() + patience;
  PreparationLock lock(preparation_mutex(), std::defer_lock);
  while (!lock.try_lock() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kTick);
  }
  return lock;
}

StateGuard::StateGuard(Graph& graph, const std::vector<at::Generator>& generators)
    : preparation_(lock_preparation()),
      variables_(graph.lock_variables()),
      kept_locked_(graph),
      watch_(std::make_shared<Watch>(graph)) {
  graph.variables().find_moved();  // the watch tells variables by their memory
  watch_->state.save(at::detail::getDefaultCPUGenerator());
  for (const at::Generator& generator : generators) {
    if (generator.defined()) watch_->state.save(generator);
  }
  scope_.emplace(watch_);
}

StateGuard::~StateGuard() {
  scope_.reset();
  watch_->state.restore();
}

void StateGuard::restore() const { watch_->state.restore(); }

const std::vector<const Variable*>& StateGuard::touched() const { return watch_->touched; }

at::Tensor StateGuard::saved(const Variable& variable) const {
  return watch_->state.saved(variable.tensor);
}

void StateGuard::save_what_is_written_by(const Trace& trace) {
  std::unordered_set<StorageId> written;
  for (const Node& node : trace.nodes) written.insert(node.writes.begin(), node.writes.end());
  for (const Value& value : trace.values) {
    if (value.is_persistent() && written.contains(value.storage)) watch_->save(value.tensor);
  }
}

void StateGuard::add(const SavedState& state) { watch_->state.add(state); }

}  // namespace tensorpack
