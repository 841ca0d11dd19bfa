// SPDX-License-Identifier: Apache-2.0
// Polymorphic objects, values outside and unique_ptr inside.
//
//   OwnedList<Callback> callbacks{ModelSaver(), PeriodicTrigger(WeightNorm("conv.*"))};
//
// std::initializer_list can only copy, so a vector of unique_ptr cannot be written in braces.
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/utils/error.h"

namespace tensorpack {

template <typename Base>
class Owned;

namespace detail {

template <typename T>
struct IsOwner : std::false_type {};
template <typename T>
struct IsOwner<std::unique_ptr<T>> : std::true_type {};
template <typename T>
struct IsOwner<Owned<T>> : std::true_type {};

// Moves a value, or takes over the object of a unique_ptr or an Owned.
template <typename Base, typename T>
std::unique_ptr<Base> make_owned(T&& object) {
  using Value = std::remove_cvref_t<T>;
  static_assert(std::has_virtual_destructor_v<Base>,
                "The base class needs a virtual destructor: it is deleted through the base.");
  static_assert(!std::is_lvalue_reference_v<T>,
                "Write std::move(object) to give it away: a copy would be used in its place, and "
                "the object itself would see nothing.");
  if constexpr (std::is_lvalue_reference_v<T>) {
    return nullptr;  // refused above, in one message
  } else if constexpr (IsOwner<Value>::value) {
    static_assert(std::convertible_to<T, std::unique_ptr<Base>>,
                  "Pass a std::unique_ptr to a class derived from the base class, with std::move.");
    return std::unique_ptr<Base>(std::forward<T>(object));
  } else {
    static_assert(
        std::derived_from<Value, Base>,
        "Pass objects of classes derived from the base class, or std::unique_ptr to such.");
    return std::make_unique<Value>(std::forward<T>(object));
  }
}

// A value, or an owner, of something derived from Base. Objects that keep their names are among
// them, so that make_owned() can say what to write.
template <typename T, typename Base>
concept HasObject = (IsOwner<std::remove_cvref_t<T>>::value
                         ? std::convertible_to<std::remove_cvref_t<T>, std::unique_ptr<Base>>
                         : std::derived_from<std::remove_cvref_t<T>, Base>);

}  // namespace detail

/// One object of a class derived from `Base`, or none. Made from a value or a unique_ptr.
template <typename Base>
class Owned {
 public:
  Owned() = default;
  Owned(std::nullptr_t) {}  // NOLINT: implicit

  /// From a value that is given away (a temporary, or std::move(object)) or a unique_ptr.
  template <typename T>
  requires(!std::same_as<std::remove_cvref_t<T>, Owned> && detail::HasObject<T, Base>)
      Owned(T&& object)  // NOLINT: implicit
      : object_(detail::make_owned<Base>(std::forward<T>(object))) {}

  Base* get() const { return object_.get(); }
  Base& operator*() const { return *object_; }
  Base* operator->() const { return object_.get(); }
  explicit operator bool() const { return object_ != nullptr; }

  /// Gives the object to another single owner.
  operator std::unique_ptr<Base>() && { return std::move(object_); }  // NOLINT: implicit
  /// Gives the object to several owners.
  std::shared_ptr<Base> share() && { return std::move(object_); }

 private:
  std::unique_ptr<Base> object_;
};

/// A move-only list of objects of classes derived from `Base`, in the order given.
template <typename Base>
class OwnedList {
  template <typename Element, typename Position>
  class Iterator {
   public:
    using difference_type = std::ptrdiff_t;
    using value_type = Element;

    Iterator() = default;
    explicit Iterator(Position position) : position_(position) {}

    Element& operator*() const { return **position_; }
    Element* operator->() const { return position_->get(); }
    Iterator& operator++() {
      ++position_;
      return *this;
    }
    Iterator operator++(int) { return Iterator(position_++); }
    bool operator==(const Iterator&) const = default;

   private:
    Position position_{};
  };

  using Objects = std::vector<std::unique_ptr<Base>>;

 public:
  OwnedList() = default;
  OwnedList(OwnedList&&) noexcept = default;
  OwnedList& operator=(OwnedList&&) noexcept = default;

  /// Takes values, each moved into the list, and unique_ptrs, in any mixture.
  template <typename... Ts>
  requires(sizeof...(Ts) > 0 && !(std::same_as<std::remove_cvref_t<Ts>, OwnedList> || ...) &&
           (detail::HasObject<Ts, Base> && ...)) OwnedList(Ts&&... objects) {  // NOLINT: implicit
    objects_.reserve(sizeof...(Ts));
    (push(detail::make_owned<Base>(std::forward<Ts>(objects))), ...);
  }

  /// Appends a value and returns the one in the list, which stays where it is.
  template <typename T>
  requires(!detail::IsOwner<T>::value) T& add(T object) {
    return add(std::make_unique<T>(std::move(object)));
  }

  /// Appends the object of a unique_ptr and returns it.
  template <typename T>
  T& add(std::unique_ptr<T> object) {
    T* added = object.get();
    push(detail::make_owned<Base>(std::move(object)));
    return *added;
  }

  /// Appends all objects of another list.
  void append(OwnedList&& other) {
    for (auto& object : other.objects_) objects_.push_back(std::move(object));
    other.objects_.clear();
  }

  /// Gives all objects away, in order.
  std::vector<std::unique_ptr<Base>> release() { return std::exchange(objects_, {}); }

  std::size_t size() const { return objects_.size(); }
  bool empty() const { return objects_.empty(); }

  Base& operator[](std::size_t i) { return *objects_[i]; }
  const Base& operator[](std::size_t i) const { return *objects_[i]; }

  auto begin() { return Iterator<Base, typename Objects::iterator>(objects_.begin()); }
  auto end() { return Iterator<Base, typename Objects::iterator>(objects_.end()); }
  auto begin() const {
    return Iterator<const Base, typename Objects::const_iterator>(objects_.begin());
  }
  auto end() const {
    return Iterator<const Base, typename Objects::const_iterator>(objects_.end());
  }

 private:
  void push(std::unique_ptr<Base> object) {
    TP_CHECK(object != nullptr, "OwnedList", "an object of the list is null. Leave it out.");
    objects_.push_back(std::move(object));
  }

  Objects objects_;
};

/// An OwnedList or none, which is not the same as an empty one: {A(), B()}, or
/// OwnedList<Base>() for a list of nothing.
template <typename Base>
class OptionalList {
 public:
  OptionalList() = default;
  OptionalList(OwnedList<Base> list) : list_(std::move(list)) {}  // NOLINT: implicit
  template <typename... Ts>
  requires(sizeof...(Ts) > 0 && (detail::HasObject<Ts, Base> && ...))
      OptionalList(Ts&&... objects)  // NOLINT: implicit
      : list_(std::in_place, std::forward<Ts>(objects)...) {}

  explicit operator bool() const { return list_.has_value(); }
  OwnedList<Base>& operator*() { return *list_; }
  const OwnedList<Base>& operator*() const { return *list_; }

 private:
  std::optional<OwnedList<Base>> list_;
};

}  // namespace tensorpack
