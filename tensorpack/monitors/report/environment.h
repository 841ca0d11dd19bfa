// SPDX-License-Identifier: Apache-2.0
// What a training runs on and how it was started.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/monitors/report/data.h"

namespace tensorpack::report {

/// Versions, machine and command line.
Facts environment_facts();

/// The flags among the words of a command line, in their order, each with what follows it:
/// {"--lr", "0.1"}; a flag alone has an empty value, words that belong to no flag are "arguments".
Facts parse_flags(const std::vector<std::string>& words);

}  // namespace tensorpack::report
