// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/copy_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace tensorpack {
namespace {

TEST(CopyBytesTest, CopiesAnyRangeAndNothingBesideIt) {
  std::string source;
  for (int i = 0; i < 400; ++i) source += static_cast<char>('a' + i % 26);
  for (const size_t count : {0, 1, 15, 63, 64, 65, 200}) {
    for (size_t begin = 0; begin < 130; begin += 3) {
      for (const size_t shift : {0, 1, 8}) {
        std::string copy(source.size(), '.');
        copy_bytes_past_caches(copy.data() + begin, source.data() + shift, count);
        std::string expected(source.size(), '.');
        expected.replace(begin, count, source, shift, count);
        ASSERT_EQ(copy, expected) << count << " " << begin << " " << shift;
      }
    }
  }
}

}  // namespace
}  // namespace tensorpack
