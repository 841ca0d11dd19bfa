// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/agreement.h"

#include <algorithm>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::string line_or_nothing(const std::vector<std::string>& lines, size_t i) {
  return i < lines.size() ? "'" + lines[i] + "'" : "nothing";
}

}  // namespace

void check_agreement(ProcessGroup& processes, const std::string& what,
                     const std::vector<std::string>& lines, const std::string& advice) {
  const std::string text = join(lines, "\n");
  const std::vector<std::string> hashes = processes.all_gather(std::to_string(xxh64(text)));
  const auto differs = std::find_if(hashes.begin(), hashes.end(),
                                    [&](const auto& hash) { return hash != hashes[0]; });
  if (differs == hashes.end()) return;
  // The texts may be long, and are sent only now.
  const std::vector<std::string> texts = processes.all_gather(text);
  const auto rank = static_cast<size_t>(differs - hashes.begin());
  const std::vector<std::string> first = split_lines(texts[0]);
  const std::vector<std::string> other = split_lines(texts[rank]);
  const auto longest = std::max(first.size(), other.size());
  size_t i = 0;
  while (i < longest && line_or_nothing(first, i) == line_or_nothing(other, i)) ++i;
  throw make_error("rank " + std::to_string(processes.rank()),
                   "the processes have different {}: rank 0 has {} where rank {} has {}. {}", what,
                   line_or_nothing(first, i), rank, line_or_nothing(other, i), advice);
}

}  // namespace tensorpack
