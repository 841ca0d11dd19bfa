// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/flags.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <optional>

#include "tensorpack/utils/env.h"

namespace tensorpack {
namespace {

bool is_flag(const std::string& word) {
  const bool is_number = word.size() > 1 && (std::isdigit(word[1]) != 0 || word[1] == '.');
  return word.size() > 1 && word[0] == '-' && !is_number;
}

// The command line is one of the process, and so is what a program makes of it.
struct KnownFlags {
  std::mutex mutex;
  std::optional<FlagValues> flags;
};

KnownFlags& known_flags() {
  static KnownFlags known;
  return known;
}

}  // namespace

std::string name_of_flag(const std::string& flag) {
  return flag.substr(std::min(flag.size(), flag.find_first_not_of('-')));
}

FlagValues command_line_flags() {
  KnownFlags& known = known_flags();
  const std::lock_guard lock(known.mutex);
  return known.flags ? *known.flags : parse_flags(command_line());
}

void set_command_line_flags(FlagValues flags) {
  KnownFlags& known = known_flags();
  const std::lock_guard lock(known.mutex);
  known.flags = std::move(flags);
}

FlagValues parse_flags(const std::vector<std::string>& words) {
  FlagValues flags;
  std::string arguments;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (!is_flag(word)) {
      arguments += (arguments.empty() ? "" : " ") + word;
    } else if (const size_t equals = word.find('='); equals != std::string::npos) {
      flags.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    } else if (i + 1 < words.size() && !is_flag(words[i + 1])) {
      flags.emplace_back(word, words[i + 1]);
      ++i;
    } else {
      flags.emplace_back(word, "");
    }
  }
  if (!arguments.empty()) flags.emplace_back("arguments", arguments);
  return flags;
}

}  // namespace tensorpack
