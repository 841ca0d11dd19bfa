// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace tensorpack {
namespace {

TEST(Base64Test, GivesTheTextsOfTheStandard) {
  EXPECT_EQ(encode_base64(""), "");
  EXPECT_EQ(encode_base64("f"), "Zg==");
  EXPECT_EQ(encode_base64("fo"), "Zm8=");
  EXPECT_EQ(encode_base64("foo"), "Zm9v");
  EXPECT_EQ(encode_base64("foobar"), "Zm9vYmFy");
}

TEST(Base64Test, TakesAnyBytes) {
  EXPECT_EQ(encode_base64(std::string("\xff\xfe\x00\x80", 4)), "//4AgA==");
}

}  // namespace
}  // namespace tensorpack
