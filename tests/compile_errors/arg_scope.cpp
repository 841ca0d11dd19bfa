// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/arg_scope.h"

#include <optional>
#include <string>
#include <tuple>

struct Forgetful {
  std::optional<int> listed = {};
  std::optional<std::string> forgotten = {};
  auto fields() { return std::tie(listed); }
};
struct ForgetsAPlainOne {
  std::optional<int> listed = {};
  bool forgotten = false;
  auto fields() { return std::tie(listed); }
};
struct Complete {
  std::optional<int> first = {};
  std::optional<std::string> second = {};
  auto fields() { return std::tie(first, second); }
};
static_assert(tensorpack::detail::count_members<Complete>() == 2);
static_assert(tensorpack::detail::count_members<ForgetsAPlainOne>() == 2);

void call_layers() {
  // error: fields() must list every member of the options
  tensorpack::with_arg_scope(Forgetful());
  tensorpack::with_arg_scope(Complete());
}
