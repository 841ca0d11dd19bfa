// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string>

namespace tensorpack::detail {

/// The operator of a schema's name, "aten::add.Tensor"; nothing where libtorch does not know it.
inline std::optional<c10::OperatorHandle> find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  const auto found = c10::Dispatcher::singleton().findSchema(
      {name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)});
  return found.has_value() ? std::optional(*found) : std::nullopt;
}

}  // namespace tensorpack::detail
