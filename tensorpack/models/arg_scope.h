// SPDX-License-Identifier: Apache-2.0
// Defaults for the options of layers.
//
//   ArgScope scope(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
//   l = Conv2D("conv0", l, {.filters = 32});
//
// What the call sets wins over the innermost scope, that over outer ones, and those over the
// layer's own defaults.
#pragma once

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "tensorpack/utils/detail/thread_frame.h"

namespace tensorpack {

namespace detail {

template <typename Options>
std::vector<Options>& arg_scopes() {
  return ThreadFrame::current().get<std::vector<Options>>();
}

template <typename T>
constexpr bool kIsOptional = false;
template <typename T>
constexpr bool kIsOptional<std::optional<T>> = true;

struct AnyOptional {
  template <typename T>
  requires kIsOptional<T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
struct AnyOther {
  template <typename T>
  requires(!kIsOptional<T>) operator T() const;  // NOLINT(google-explicit-constructor)
};

// How many members a struct of options has: as many as it can be initialised with.
template <typename Options, typename... Members>
consteval size_t count_members() {
  if constexpr (requires { Options{Members{}..., AnyOptional{}}; }) {
    return count_members<Options, Members..., AnyOptional>();
  } else if constexpr (requires { Options{Members{}..., AnyOther{}}; }) {
    return count_members<Options, Members..., AnyOther>();
  } else {
    return sizeof...(Members);
  }
}

// What fields() returns. The first argument is the parameter of a template, so that a program which
// includes the layer and opens no scope does not compile its std::tuple.
template <typename, typename... Fields>
std::tuple<Fields&...> tie_fields(Fields&... fields) {
  return {fields...};
}

// Takes from `defaults` every field that is not set.
template <typename Options>
void fill_unset(Options& options, Options defaults) {
  static_assert(
      count_members<Options>() == std::tuple_size_v<decltype(std::declval<Options&>().fields())>,
      "fields() must list every member of the options: ArgScope would ignore the others");
  auto fill = [](auto& field, auto& fallback) {
    if (!field.has_value()) field = std::move(fallback);
  };
  auto to = options.fields();
  auto from = defaults.fields();
  [&]<size_t... I>(std::index_sequence<I...>) { (fill(std::get<I>(to), std::get<I>(from)), ...); }
  (std::make_index_sequence<std::tuple_size_v<decltype(to)>>{});
}

}  // namespace detail

/// While it lives, layers called on this thread take unset options from it. Every layer whose
/// option struct has fields() supports it.
template <typename Options>
class [[nodiscard]] ArgScope {
 public:
  explicit ArgScope(Options defaults) {
    auto& stack = detail::arg_scopes<Options>();
    if (!stack.empty()) detail::fill_unset(defaults, stack.back());
    stack.push_back(std::move(defaults));
  }
  ~ArgScope() { detail::arg_scopes<Options>().pop_back(); }
  ArgScope(const ArgScope&) = delete;
  ArgScope& operator=(const ArgScope&) = delete;
};

/// The options of one call, completed from the scopes around it.
template <typename Options>
Options with_arg_scope(Options options) {
  const auto& stack = detail::arg_scopes<Options>();
  if (!stack.empty()) detail::fill_unset(options, stack.back());
  return options;
}

}  // namespace tensorpack
