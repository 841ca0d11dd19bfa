// SPDX-License-Identifier: Apache-2.0
// What an agent remembers, as a dataflow.
#pragma once

#include <memory>
#include <mutex>

#include "examples/reinforcement/cartpole.h"
#include "tensorpack/tensorpack.h"

/// The last transitions, in a ring. On a GPU batches are drawn by the thread of a StagingInput.
class ReplayMemory {
 public:
  explicit ReplayMemory(int64_t capacity)
      : state_(torch::zeros({capacity, 4})),
        action_(torch::zeros({capacity}, torch::kLong)),
        next_state_(torch::zeros({capacity, 4})),
        fell_(torch::zeros({capacity})) {}

  void add(const CartPole::State& state, bool action, const CartPole::State& next, bool fell) {
    const std::lock_guard lock(mutex_);
    const int64_t row = added_++ % action_.size(0);
    std::copy(state.begin(), state.end(), state_.data_ptr<float>() + 4 * row);
    std::copy(next.begin(), next.end(), next_state_.data_ptr<float>() + 4 * row);
    action_.data_ptr<int64_t>()[row] = action;
    fell_.data_ptr<float>()[row] = fell;
  }

  /// A batch of {state, action, next state, whether the pole fell}.
  tensorpack::DataPoint sample(int64_t batch) const {
    const std::lock_guard lock(mutex_);
    const auto rows = torch::randint(std::min(added_, action_.size(0)), {batch}, torch::kLong);
    return {state_.index_select(0, rows), action_.index_select(0, rows),
            next_state_.index_select(0, rows), fell_.index_select(0, rows)};
  }

 private:
  torch::Tensor state_, action_, next_state_, fell_;
  int64_t added_ = 0;
  mutable std::mutex mutex_;
};

/// An endless flow of batches from a memory that others fill.
class Replay final : public tensorpack::DataFlow {
 public:
  Replay(std::shared_ptr<const ReplayMemory> memory, int64_t batch)
      : memory_(std::move(memory)), batch_(batch) {}
  std::optional<tensorpack::DataPoint> next() override { return memory_->sample(batch_); }
  int64_t skip(int64_t count) override { return count; }  // what was drawn never comes again

 private:
  std::shared_ptr<const ReplayMemory> memory_;
  int64_t batch_;
};
