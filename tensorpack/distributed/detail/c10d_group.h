// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "tensorpack/distributed/detail/rendezvous.h"
#include "tensorpack/distributed/process_group.h"

namespace tensorpack::detail {

/// The group of several processes that have met.
std::shared_ptr<ProcessGroup> make_c10d_group(const ProcessGroupOptions& options, Meeting meeting);

}  // namespace tensorpack::detail
