// SPDX-License-Identifier: Apache-2.0
// Finding out before the first step that processes do not do the same, where they would wait for
// each other for ever.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/distributed/process_group.h"

namespace tensorpack {

/// Throws an Error, in all processes, that shows the first line in which one of them differs from
/// the first process. `what` is said to differ, and `advice` how to mend it.
void check_agreement(ProcessGroup& processes, const std::string& what,
                     const std::vector<std::string>& lines, const std::string& advice);

}  // namespace tensorpack
