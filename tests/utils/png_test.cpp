// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/png.h"

#include <gmock/gmock.h>

#include <numeric>
#include <vector>

#include "tensorpack/utils/error.h"

#ifdef TENSORPACK_HAS_OPENCV
#include <opencv2/imgcodecs.hpp>
#endif

namespace tensorpack {
namespace {

TEST(PngTest, AnImageWithoutPixelsIsRefused) {
  EXPECT_THROW(encode_png({}, 0, 3, 1), Error);
  EXPECT_THROW(encode_png({}, 1, 3, 5), Error);
}

TEST(PngTest, BeginsAndEndsAsTheFormatWants) {
  const std::vector<uint8_t> pixels = {7};
  const std::string file = encode_png(pixels, 1, 1, 1);
  EXPECT_EQ(file.substr(0, 8), "\x89PNG\r\n\x1a\n");
  EXPECT_EQ(file.substr(file.size() - 12), std::string("\0\0\0\0IEND\xae\x42\x60\x82", 12));
}

#ifdef TENSORPACK_HAS_OPENCV
TEST(PngTest, AnotherReaderFindsTheSamePixels) {
  for (const int channels : {1, 3, 4}) {
    std::vector<uint8_t> pixels(static_cast<size_t>(5 * 7 * channels));
    std::iota(pixels.begin(), pixels.end(), uint8_t{3});
    const std::string file = encode_png(pixels, 5, 7, channels);
    const cv::Mat read = cv::imdecode(
        cv::Mat(1, static_cast<int>(file.size()), CV_8U, const_cast<char*>(file.data())),
        cv::IMREAD_UNCHANGED);
    ASSERT_EQ(read.rows, 5);
    ASSERT_EQ(read.cols, 7);
    ASSERT_EQ(read.channels(), channels);
    for (int i = 0; i < 5 * 7; ++i) {
      for (int c = 0; c < channels; ++c) {
        const int stored = channels == 1 || c == 3 ? c : 2 - c;  // OpenCV has BGR
        EXPECT_EQ(read.data[i * channels + stored], pixels[static_cast<size_t>(i * channels + c)]);
      }
    }
  }
}
#endif

}  // namespace
}  // namespace tensorpack
