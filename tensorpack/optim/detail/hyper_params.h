// SPDX-License-Identifier: Apache-2.0
// How optimizers report their options.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "tensorpack/utils/hyper_params.h"

namespace tensorpack::detail {

/// The options under their names, `<scope>/` before them if there is one, and the optimizer's own
/// name as `optimizer`.
inline HyperParams hyper_params_of(
    const char* optimizer, const std::string& scope,
    std::initializer_list<std::pair<const char*, std::string>> options) {
  const std::string prefix = scope.empty() ? "" : scope + "/";
  HyperParams params{{prefix + "optimizer", optimizer}};
  for (const auto& [name, value] : options) params.emplace(prefix + name, value);
  return params;
}

/// Those of an optimizer, with one of an optimizer around it.
inline HyperParams with_option(HyperParams params, const std::string& scope, const char* name,
                               const std::string& value) {
  params.emplace(scope.empty() ? name : scope + "/" + name, value);
  return params;
}

}  // namespace tensorpack::detail
