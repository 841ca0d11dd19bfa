// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/decode.h"

#include <gmock/gmock.h>

#include <random>

#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/png.h"
#include "tests/dataflow/jpeg_writer.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using imgaug::Rectangle;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using torch::Tensor;

double mean_difference(const Tensor& a, const Tensor& b) {
  return (a.to(torch::kFloat) - b.to(torch::kFloat)).abs().mean().item<double>();
}

Tensor part_of(const Tensor& image, const Rectangle& area) {
  return image.narrow(0, area.top, area.height).narrow(1, area.left, area.width);
}

TEST(DecodeImageTest, JpegIsWhatWasWrittenInEachColor) {
  const Tensor image = picture(70, 90);
  const std::string jpeg = encode_jpeg(image, {.horizontal = 1, .vertical = 1});
  const Tensor rgb = decode_image(jpeg);
  EXPECT_EQ(rgb.sizes(), image.sizes());
  EXPECT_LT(mean_difference(rgb, image), 5);
  EXPECT_TRUE(torch::equal(decode_image(jpeg, {.color = ImageColor::kBgr}), rgb.flip(2)));
  const Tensor gray = decode_image(jpeg, {.color = ImageColor::kGray});
  EXPECT_EQ(gray.sizes(), (std::vector<int64_t>{70, 90, 1}));
  const Tensor weights = torch::tensor({0.299F, 0.587F, 0.114F});
  EXPECT_LT(mean_difference(gray.squeeze(2), rgb.to(torch::kFloat).matmul(weights)), 1);
}

TEST(DecodeImageTest, GrayJpegBecomesThreeEqualChannels) {
  const Tensor image = picture(20, 30, 1);
  const Tensor decoded = decode_image(encode_jpeg(image));
  EXPECT_LT(mean_difference(decoded, image.expand({20, 30, 3})), 3);
  EXPECT_TRUE(torch::equal(decoded.select(2, 0), decoded.select(2, 2)));
}

TEST(DecodeImageTest, CmykJpegBecomesRgb) {
  Tensor ink = torch::empty({16, 16, 4}, torch::kByte);  // as Adobe has it: 255 is no ink
  const std::vector<int> values = {200, 100, 50, 255};
  for (int c = 0; c < 4; ++c) ink.select(2, c).fill_(values[c]);
  const Tensor rgb = decode_image(encode_jpeg(ink)).to(torch::kFloat).flatten(0, 1).mean(0);
  EXPECT_LT(mean_difference(rgb, torch::tensor({200., 100., 50.})), 3);
}

// What the decoder leaves out must not change what it gives: bit by bit, for every kind of JPEG.
TEST(DecodeImageTest, AreaIsThatPartOfTheWholeImage) {
  std::mt19937 random(3);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % bound); };
  for (const JpegKind kind :
       {JpegKind{}, JpegKind{.horizontal = 1, .vertical = 1}, JpegKind{.vertical = 1},
        JpegKind{.horizontal = 1}, JpegKind{.progressive = true}}) {
    const Tensor image = picture(101, 147);
    const std::string jpeg = encode_jpeg(image, kind);
    const Tensor whole = decode_image(jpeg);
    for (int i = 0; i < 60; ++i) {
      Rectangle area{.left = below(146), .top = below(100)};
      if (i % 3 == 0) area.left = area.left / 16 * 16;  // where blocks begin
      area.width = 1 + below(147 - area.left);
      area.height = 1 + below(101 - area.top);
      SCOPED_TRACE(fmt::format("{}x{}, progressive {}: {} x {} at {}, {}", kind.horizontal,
                               kind.vertical, kind.progressive, area.width, area.height, area.left,
                               area.top));
      const Tensor part = decode_image(jpeg, {.area = area});
      ASSERT_TRUE(torch::equal(part, part_of(whole, area)));
    }
  }
}

TEST(DecodeImageTest, IsReducedButNotBelowWhatIsAsked) {
  const std::string jpeg = encode_jpeg(picture(375, 500));
  using Size = std::pair<int64_t, int64_t>;
  const auto size_at_least = [&](int64_t height, int64_t width) {
    const Tensor image = decode_image(jpeg, {.at_least = {{.height = height, .width = width}}});
    return Size(image.size(0), image.size(1));
  };
  EXPECT_EQ(size_at_least(375, 500), Size(375, 500));
  EXPECT_EQ(size_at_least(188, 251), Size(375, 500));
  EXPECT_EQ(size_at_least(187, 250), Size(188, 250));
  EXPECT_EQ(size_at_least(90, 100), Size(94, 125));
  EXPECT_EQ(size_at_least(1, 1), Size(47, 63));
  EXPECT_EQ(size_at_least(600, 600), Size(375, 500));
  const Tensor half = decode_image(jpeg, {.at_least = {{.height = 187, .width = 250}}});
  const Tensor whole = decode_image(jpeg);
  const Tensor averaged =
      torch::avg_pool2d(whole.narrow(0, 0, 374).permute({2, 0, 1}).to(torch::kFloat), {2, 2});
  EXPECT_LT(mean_difference(half.narrow(0, 0, 187).permute({2, 0, 1}), averaged), 4);
}

TEST(DecodeImageTest, AreaCanBeReduced) {
  const std::string jpeg = encode_jpeg(picture(375, 500));
  const Tensor half = decode_image(jpeg, {.at_least = {{.height = 187, .width = 250}}});
  const Tensor part =
      decode_image(jpeg, {.area = {{.left = 100, .top = 50, .width = 300, .height = 200}},
                          .at_least = {{.height = 100, .width = 150}}});
  EXPECT_TRUE(
      torch::equal(part, part_of(half, {.left = 50, .top = 25, .width = 150, .height = 100})));
}

TEST(DecodeImageTest, AreaMustBeInside) {
  const std::string jpeg = encode_jpeg(picture(20, 30));
  EXPECT_ERROR(decode_image(jpeg, {.area = {{.left = 11, .width = 20, .height = 5}}, .name = "it"}),
               "20 x 5 pixels at (11, 0) is not inside it, which has 30 x 20");
  EXPECT_ERROR(decode_image(jpeg, {.area = {{.left = -1, .width = 20, .height = 5}}}),
               "not inside");
  EXPECT_ERROR(decode_image(jpeg, {.area = Rectangle()}), "not inside");
}

TEST(DecodeImageTest, EveryCutIsAnErrorWithFileAndOffset) {
  const TempDir dir;
  const std::string whole = encode_jpeg(picture(64, 64));
  for (const size_t size :
       {size_t{3}, size_t{20}, size_t{300}, whole.size() / 2, whole.size() - 40}) {
    SCOPED_TRACE(size);
    write_file_atomically(dir / "cut.jpg", whole.substr(0, size));
    EXPECT_THAT([&] { read_image(dir / "cut.jpg"); },
                ThrowsMessage<Error>(AllOf(HasSubstr((dir / "cut.jpg").string()),
                                           HasSubstr(fmt::format("of {}: ", size)),
                                           HasSubstr("cut off, at byte"))));
  }
  // What follows an area is not looked at.
  const std::string half = whole.substr(0, whole.size() / 2);
  EXPECT_EQ(decode_image(half, {.area = {{.width = 64, .height = 8}}}).size(0), 8);
}

// Either an error or some pixels, and never a crash; the sanitizers are the judges.
TEST(DecodeImageTest, DamagedBytesNeverDoMoreThanThrow) {
  std::mt19937 random(1);
  int refused = 0;
  for (const bool progressive : {false, true}) {
    const std::string whole = encode_jpeg(picture(48, 64), {.progressive = progressive});
    for (int i = 0; i < 300; ++i) {
      std::string damaged = whole;
      for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random());
      try {
        decode_image(damaged, {.max_pixels = 1 << 20});
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 50);
}

TEST(DecodeImageTest, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  EXPECT_ERROR(decode_image(encode_jpeg(picture(40, 30)), {.name = "a.jpg", .max_pixels = 1199}),
               "a.jpg claims to have 30 x 40 pixels, and 1199 are allowed");
  std::string jpeg = encode_jpeg(picture(40, 30));
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\x7f\xff\x7f\xff");
  EXPECT_ERROR(decode_image(jpeg), "32767 x 32767");
}

TEST(DecodeImageTest, NoImageAtAllIsSaid) {
  EXPECT_THROW(decode_image(""), Error);
  EXPECT_THROW(decode_image("\xff\xd8"), Error);
  EXPECT_ERROR(read_image("/nowhere/a.jpg"), "/nowhere/a.jpg");
}

#ifdef TENSORPACK_HAS_OPENCV

std::string png_of(const Tensor& image) {
  return encode_png({image.data_ptr<uint8_t>(), static_cast<size_t>(image.numel())}, image.size(0),
                    image.size(1), image.size(2));
}

TEST(DecodeImageTest, PngIsExact) {
  const Tensor image = picture(21, 33);
  const std::string png = png_of(image);
  EXPECT_TRUE(torch::equal(decode_image(png), image));
  EXPECT_TRUE(torch::equal(decode_image(png, {.color = ImageColor::kBgr}), image.flip(2)));
  const Rectangle area{.left = 5, .top = 7, .width = 9, .height = 3};
  EXPECT_TRUE(torch::equal(decode_image(png, {.area = area}), part_of(image, area)));
  EXPECT_EQ(decode_image(png, {.color = ImageColor::kGray}).size(2), 1);
}

TEST(DecodeImageTest, DamagedPngIsAnError) {
  const std::string png = png_of(picture(21, 33));
  EXPECT_ERROR(decode_image(png.substr(0, png.size() / 2), {.name = "a.png"}), "a.png, of ");
  EXPECT_ERROR(decode_image("<html>", {.name = "a.png"}), "begin with 3c 68 74 6d");
  std::string huge = png;
  huge[16] = '\x7f';
  huge[20] = '\x7f';
  EXPECT_ERROR(decode_image(huge), "claims to have 2130706465 x 2130706453");
}

#endif

}  // namespace
}  // namespace tensorpack::test
