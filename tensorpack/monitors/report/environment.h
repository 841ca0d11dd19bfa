// SPDX-License-Identifier: Apache-2.0
// What a training runs on.
#pragma once

#include "tensorpack/monitors/report/data.h"

namespace tensorpack::report {

/// Versions, machine and command line.
Facts environment_facts();

}  // namespace tensorpack::report
