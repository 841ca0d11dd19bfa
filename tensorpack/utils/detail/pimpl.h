// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>

namespace tensorpack::detail {

/// Owns an object whose type the source completes, as a std::unique_ptr does. For members of
/// classes in public headers: each type of std::unique_ptr costs every file that includes
/// tensorpack.h 1.4 MB of g++'s memory, and the time to fill it, this 50 kB.
template <typename T>
class Pimpl {
 public:
  Pimpl() = default;
  Pimpl(std::nullptr_t) {}  // NOLINT: implicit
  explicit Pimpl(T* object) : object_(object) {}
  /// Takes the object over from a std::unique_ptr.
  template <typename Owner>
  requires requires(Owner& owner) { owner.release(); }
  Pimpl(Owner owner) : object_(owner.release()) {}  // NOLINT: implicit
  Pimpl(Pimpl&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Pimpl& operator=(Pimpl&& other) noexcept {
    destroy(std::exchange(object_, std::exchange(other.object_, nullptr)));
    return *this;
  }
  ~Pimpl() { destroy(object_); }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(std::nullptr_t) const { return object_ == nullptr; }
  void reset() { destroy(std::exchange(object_, nullptr)); }

 private:
  static void destroy(T* object) {
    static_assert(sizeof(T) > 0, "the type must be complete where its owner is destroyed");
    delete object;
  }

  T* object_ = nullptr;
};

}  // namespace tensorpack::detail
