// SPDX-License-Identifier: Apache-2.0
// Damages files in the ways that readers get wrong, the same in every run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tensorpack {

/// How many damaged files a test reads; TENSORPACK_MUTATIONS asks for more than it usually does.
inline int mutations(int usual) {
  const char* asked = std::getenv("TENSORPACK_MUTATIONS");
  return asked == nullptr ? usual : std::atoi(asked);
}

/// Makes damaged copies of some files.
class Mutator {
 public:
  explicit Mutator(std::vector<std::string> files, uint64_t seed = 1)
      : files_(std::move(files)), random_(seed) {}

  std::string next() {
    std::string bytes = pick(files_);
    for (size_t i = 1 + below(4); i > 0; --i) mutate(bytes);
    return bytes;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  template <typename List>
  const typename List::value_type& pick(const List& list) {
    return list[below(list.size())];
  }

  void mutate(std::string& bytes) {
    const size_t at = below(bytes.size());
    const size_t length = std::min<size_t>(1 + below(16), bytes.size() - at);
    switch (below(9)) {
      case 0:
        if (!bytes.empty()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (!bytes.empty()) bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        write_integer(bytes, at);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), length));
        break;
      case 5:
        bytes.resize(at);
        break;
      case 6: {  // the beginning of one file and the end of another
        const std::string& other = pick(files_);
        bytes = bytes.substr(0, at) + other.substr(std::min(at, other.size()));
        break;
      }
      case 7:
        replace_number(bytes);
        break;
      case 8:
        bytes.insert(at, pick(kTexts));
        break;
    }
  }

  // As little-endian integers of all widths are stored.
  void write_integer(std::string& bytes, size_t at) {
    const uint64_t value = pick(kIntegers);
    const size_t width = size_t{1} << below(4);
    for (size_t i = 0; i < width && at + i < bytes.size(); ++i) {
      bytes[at + i] = static_cast<char>(value >> (8 * i));
    }
  }

  // As texts have them.
  void replace_number(std::string& bytes) {
    constexpr const char* kDigits = "0123456789";
    const size_t begin = bytes.find_first_of(kDigits, below(bytes.size()));
    if (begin == std::string::npos) return;
    const size_t end = bytes.find_first_not_of(kDigits, begin);
    bytes.replace(begin, std::min(end, bytes.size()) - begin, pick(kNumbers));
  }

  static constexpr std::array<uint64_t, 12> kIntegers = {0,
                                                         1,
                                                         7,
                                                         0x7f,
                                                         0xff,
                                                         0x7fff,
                                                         0xffff,
                                                         0x7fffffff,
                                                         0xffffffff,
                                                         0x7fffffffffffffff,
                                                         0xffffffffffffffff,
                                                         0x8000000000000000};
  static inline const std::vector<std::string> kNumbers = {"0",
                                                           "-1",
                                                           "1e999",
                                                           "1.5",
                                                           "4294967296",
                                                           "9223372036854775807",
                                                           "18446744073709551615",
                                                           "99999999999999999999"};
  static inline const std::vector<std::string> kTexts = {"\"",
                                                         "{",
                                                         "}",
                                                         "[",
                                                         "]",
                                                         ",",
                                                         ":",
                                                         "null",
                                                         "\\u0000",
                                                         "../",
                                                         "{\"\":",
                                                         "\xff",
                                                         std::string(1, '\0'),
                                                         std::string(300, '['),
                                                         "\n"};

  std::vector<std::string> files_;
  std::mt19937_64 random_;
};

}  // namespace tensorpack
