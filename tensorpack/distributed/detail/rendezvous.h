// SPDX-License-Identifier: Apache-2.0
// How the processes started together find each other.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tensorpack/distributed/detail/c10d.h"
#include "tensorpack/utils/launch_environment.h"

namespace tensorpack::detail {

struct Meeting {
  /// Two connections to one store: calls through one of them wait for each other.
  std::shared_ptr<SharedStore> store{};
  std::shared_ptr<SharedStore> store_for_signs{};
  /// The address that the others reach this process at.
  std::string address{};
  /// What this process hosts for the others, to be kept as long as the group.
  std::shared_ptr<SharedStore> hosted{};
};

/// "[rank 0 of 4]" without the brackets, for messages.
std::string describe_place(const LaunchEnvironment& place);

/// Returns when all have come; throws an Error that names those that did not.
Meeting meet(const LaunchEnvironment& place, std::chrono::milliseconds timeout);

}  // namespace tensorpack::detail
