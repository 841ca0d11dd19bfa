// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/shell.h"

#include "tensorpack/utils/string.h"

namespace tensorpack {

std::string shell_word(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string shell_text(const std::vector<std::string>& words) {
  constexpr const char* kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+./,:@%^";
  std::vector<std::string> parts;
  for (const std::string& word : words) {
    const bool is_plain = !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
    parts.push_back(is_plain ? word : shell_word(word));
  }
  return join(parts, " ");
}

}  // namespace tensorpack
