// SPDX-License-Identifier: Apache-2.0
// Checksums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tensorpack {

/// XXH64 of some bytes, as the xxHash library computes it: for finding damage, not for security.
std::uint64_t xxh64(std::string_view bytes, std::uint64_t seed = 0);

/// The same for bytes that come in pieces.
class Xxh64 {
 public:
  explicit Xxh64(std::uint64_t seed = 0);
  void add(std::string_view bytes);
  /// Of all that was added so far.
  std::uint64_t value() const;

 private:
  std::uint64_t seed_;
  std::array<std::uint64_t, 4> lanes_;
  std::array<unsigned char, 32> rest_ = {};  // too few to fill the lanes
  std::size_t rest_size_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace tensorpack
