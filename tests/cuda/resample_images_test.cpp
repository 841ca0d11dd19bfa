// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/resample_images.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/cuda/nvjpeg.h"
#include "tensorpack/dataflow/image/detail/resample.h"
#include "tests/cuda/host_device.h"
#include "tests/support/throws.h"

namespace tensorpack::cuda {
namespace {

// Images of random bytes, one after the other.
struct SomeImages {
  at::Tensor pixels;
  std::vector<ImageToResample> images;
  std::vector<int64_t> heights;
};

SomeImages some_images() {
  return {.pixels = at::randint(256, {30 * 40 * 3 + 9 * 7 * 3}, at::kByte),
          .images = {{.width = 40, .part_width = 40, .part_height = 30},
                     {.width = 40, .left = 3, .top = 5, .part_width = 30, .part_height = 21},
                     {.width = 40, .left = 39, .top = 29, .part_width = 1, .part_height = 1},
                     {.offset = 30 * 40 * 3,
                      .width = 7,
                      .left = 1,
                      .part_width = 6,
                      .part_height = 9,
                      .mirror = 1}},
          .heights = {30, 30, 30, 9}};
}

template <typename T>
at::Tensor on_cpu(const SomeImages& some, const ResampleImages& a, at::Tensor batch) {
  for (size_t i = 0; i < some.images.size(); ++i) {
    const ImageToResample& image = some.images[i];
    const int64_t height = some.heights[i];
    const at::Tensor three = some.pixels.narrow(0, image.offset, height * image.width * 3)
                                 .view({height, image.width, 3});
    const at::Tensor four = at::constant_pad_nd(three, {0, 1});
    at::Tensor row = batch.select(0, static_cast<int64_t>(i));
    detail::resample<T>({.data = four.data_ptr<uint8_t>(),
                         .stride = image.width * 4,
                         .width = image.width,
                         .height = height},
                        {.left = static_cast<double>(image.left),
                         .top = static_cast<double>(image.top),
                         .width = static_cast<double>(image.part_width),
                         .height = static_cast<double>(image.part_height)},
                        {.data = row.data_ptr<T>(),
                         .width = row.size(2),
                         .height = row.size(1),
                         .channel_stride = row.stride(0),
                         .row_stride = row.stride(1),
                         .pixel_stride = row.stride(2),
                         .mirror = image.mirror != 0,
                         .scale = a.scale,
                         .bias = a.bias},
                        {.antialias = a.antialias});
  }
  return batch;
}

TEST(ResampleImagesKernelTest, GivesWhatTheCpuGives) {
  const HostLauncher launcher;
  const SomeImages some = some_images();
  for (const bool antialias : {true, false}) {
    const ResampleImages numbers{.pixels = some.pixels,
                                 .images = some.images,
                                 .scale = {0.5F, 0.25F, 0.1F},
                                 .bias = {-1, -2, 3},
                                 .antialias = antialias};
    const at::Tensor floats = at::empty({4, 3, 11, 13}, at::kFloat);
    resample_images(numbers, floats, launcher);
    EXPECT_TRUE(
        at::allclose(floats, on_cpu<float>(some, numbers, at::empty_like(floats)), 1e-4, 1e-3));

    const ResampleImages bytes{
        .pixels = some.pixels, .images = some.images, .antialias = antialias};
    const at::Tensor batch = at::empty(
        {4, 3, 11, 13}, at::TensorOptions(at::kByte).memory_format(at::MemoryFormat::ChannelsLast));
    resample_images(bytes, batch, launcher);
    const at::Tensor expected = on_cpu<uint8_t>(some, bytes, at::empty_like(batch));
    EXPECT_LE((batch.to(at::kInt) - expected.to(at::kInt)).abs().max().item<int>(), 1);
  }
}

TEST(ResampleImagesKernelTest, CopiesWhatHasTheSizeAlready) {
  const HostLauncher launcher;
  const SomeImages some = some_images();
  const at::Tensor batch = at::empty({1, 3, 30, 40}, at::kByte);
  resample_images({.pixels = some.pixels, .images = {some.images[0]}}, batch, launcher);
  const at::Tensor image = some.pixels.narrow(0, 0, 30 * 40 * 3).view({30, 40, 3});
  EXPECT_TRUE(at::equal(batch[0], image.permute({2, 0, 1})));
}

TEST(NvJpegTest, WithoutItTheErrorSaysWhatToDo) {
  try {
    nvjpeg();
    GTEST_SKIP() << "nvJPEG is here";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("[DecodingInput] nvJPEG was not found"));
    EXPECT_THAT(error.what(), testing::HasSubstr("Install it"));
  }
}

TEST(NvJpegTest, ResultsHaveNames) {
  EXPECT_EQ(nvjpeg_error(3), "bad JPEG");
  EXPECT_EQ(nvjpeg_error(99), "error 99");
}

}  // namespace
}  // namespace tensorpack::cuda
