// SPDX-License-Identifier: Apache-2.0
// A coroutine that yields values on demand.
#pragma once

#include <coroutine>
#include <exception>
#include <optional>
#include <utility>

namespace tensorpack {

/// The return type of a coroutine that yields values of type T with co_yield.
///
/// The coroutine runs only inside next(), and is destroyed with the generator wherever it stands.
template <typename T>
class [[nodiscard]] Generator {
 public:
  struct promise_type {
    std::optional<T> value;
    std::exception_ptr exception;

    Generator get_return_object() {
      return Generator(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    std::suspend_always yield_value(const T& yielded) {
      value = yielded;
      return {};
    }
    std::suspend_always yield_value(T&& yielded) {
      value = std::move(yielded);
      return {};
    }
    void return_void() const {}
    void unhandled_exception() { exception = std::current_exception(); }
    // A generator is a plain source: waiting for something else is not part of it.
    void await_transform() = delete;
  };

  Generator(Generator&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Generator& operator=(Generator&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Generator() {
    if (handle_) handle_.destroy();
  }

  /// Runs up to the next co_yield: the value, or nullopt at the end. Throws what the body throws.
  std::optional<T> next() {
    if (!handle_ || handle_.done()) return std::nullopt;
    promise_type& promise = handle_.promise();
    promise.value.reset();
    handle_.resume();
    if (promise.exception) std::rethrow_exception(std::exchange(promise.exception, nullptr));
    return std::move(promise.value);
  }

 private:
  explicit Generator(std::coroutine_handle<promise_type> handle) : handle_(handle) {}

  std::coroutine_handle<promise_type> handle_;
};

}  // namespace tensorpack
