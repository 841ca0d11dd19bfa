// SPDX-License-Identifier: Apache-2.0
// Operators by the names of their schemas. To find one takes a lock and a search: keep what is
// found.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

namespace tensorpack {

/// find_operator("aten::add", "Tensor"). Throws where libtorch does not know it.
inline c10::OperatorHandle find_operator(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

/// The same, to be called with the arguments of `Function`.
template <typename Function>
c10::TypedOperatorHandle<Function> find_operator(const char* name, const char* overload = "") {
  return find_operator(name, overload).typed<Function>();
}

/// The operator of a full name, "aten::add.Tensor"; nothing where libtorch does not know it.
inline std::optional<c10::OperatorHandle> try_find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  const auto found = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  return found.has_value() ? std::optional(*found) : std::nullopt;
}

}  // namespace tensorpack
