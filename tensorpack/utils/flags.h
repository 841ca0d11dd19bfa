// SPDX-License-Identifier: Apache-2.0
// What a program was told on its command line, for reports.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace tensorpack {

/// Names and values, in the order in which they are shown: {"--lr", "0.1"}.
using FlagValues = std::vector<std::pair<std::string, std::string>>;

/// "lr" of "--lr".
std::string name_of_flag(const std::string& flag);

/// Those of set_command_line_flags(); otherwise what the command line of this process has.
FlagValues command_line_flags();

/// For programs that also know the values of flags that were not given.
void set_command_line_flags(FlagValues flags);

/// The flags among the words of a command line, in their order, each with what follows it; a flag
/// alone has an empty value, words that belong to no flag are "arguments".
FlagValues parse_flags(const std::vector<std::string>& words);

}  // namespace tensorpack
