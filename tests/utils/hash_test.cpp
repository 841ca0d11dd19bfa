// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/hash.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tensorpack {
namespace {

// From the xxHash library.
TEST(HashTest, IsTheXxh64OfOthers) {
  EXPECT_EQ(xxh64(""), 0xEF46DB3751D8E999);
  EXPECT_EQ(xxh64("a"), 0xD24EC4F1A98C6E5B);
  EXPECT_EQ(xxh64("abc"), 0x44BC2CF5AD770999);
  EXPECT_EQ(xxh64("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1);
}

TEST(HashTest, EveryBitCounts) {
  for (const size_t size : {1, 3, 4, 7, 8, 31, 32, 33, 100}) {
    std::string bytes(size, 'x');
    const uint64_t before = xxh64(bytes);
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
      EXPECT_NE(xxh64(bytes), before) << size << " " << bit;
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    }
  }
  EXPECT_NE(xxh64("a", 1), xxh64("a"));
}

TEST(HashTest, PiecesGiveTheSameAsTheWhole) {
  std::string bytes;
  for (int i = 0; i < 200; ++i) bytes += static_cast<char>(37 * i);
  for (const size_t piece : {1, 5, 8, 31, 32, 33, 64, 199}) {
    Xxh64 hash(7);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hash.add(std::string_view(bytes).substr(at, piece));
      EXPECT_EQ(hash.value(), xxh64(bytes.substr(0, at + piece), 7)) << piece << " " << at;
    }
  }
}

}  // namespace
}  // namespace tensorpack
