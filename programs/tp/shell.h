// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tensorpack {

/// The word as a shell reads it back.
std::string shell_word(const std::string& word);

/// The words as a shell reads them back; those that need no quotes have none.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace tensorpack
