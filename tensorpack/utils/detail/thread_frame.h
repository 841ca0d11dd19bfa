// SPDX-License-Identifier: Apache-2.0
// What calls on a thread depend on without being told: open scopes, contexts, precision.
//
// Note [One frame per thread]
// RAII scopes (VariableScope, TowerContext, ArgScope ...) work through state of the thread. All of
// it is in one frame, so that it can be set aside as a whole: the function of an op is called with
// an empty frame, and what happens to be open around a run cannot leak into what is recorded.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace tensorpack {

/// The hidden state of a thread: one value of each type that somebody asked for.
class ThreadFrame {
 public:
  static ThreadFrame& current();

  /// The thread's value of this type, made at first use.
  template <typename T>
  T& get() {
    const size_t index = index_of<T>();
    if (index >= slots_.size()) slots_.resize(index + 1);
    if (!slots_[index]) slots_[index] = std::make_unique<Holder<T>>();
    return static_cast<Holder<T>&>(*slots_[index]).value;
  }

 private:
  struct Slot {
    virtual ~Slot() = default;
  };
  template <typename T>
  struct Holder final : Slot {
    T value{};
  };

  static size_t new_index();
  template <typename T>
  static size_t index_of() {
    static const size_t index = new_index();
    return index;
  }

  std::vector<std::unique_ptr<Slot>> slots_;
};

/// While it lives, the thread has an empty frame.
class [[nodiscard]] FreshFrame {
 public:
  FreshFrame() : outer_(std::exchange(ThreadFrame::current(), {})) {}
  ~FreshFrame() { ThreadFrame::current() = std::move(outer_); }
  FreshFrame(const FreshFrame&) = delete;
  FreshFrame& operator=(const FreshFrame&) = delete;

 private:
  ThreadFrame outer_;
};

}  // namespace tensorpack
