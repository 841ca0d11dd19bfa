// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/image_batch.h"

#include <gmock/gmock.h>

#include "tensorpack/dataflow/dataset/image_folder.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/fs.h"
#include "tests/dataflow/jpeg_writer.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using imgaug::ImageSize;
using imgaug::Rectangle;
using torch::Tensor;

// Takes all of an image.
Rectangle everything(ImageSize size, Rng&) { return {.width = size.width, .height = size.height}; }

FromList jpegs(int64_t count, int64_t height = 40, int64_t width = 60) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor image = picture(height + i, width);
    points.push_back({bytes(encode_jpeg(image, {.horizontal = 1, .vertical = 1})), number(i)});
  }
  return FromList(std::move(points));
}

DataPoint one_batch(DataFlowPtr flow) { return flow->next().value(); }

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a.to(torch::kDouble) - b.to(torch::kDouble)).abs().max().item<double>();
}

// [height, width, 3] as the batch has it.
Tensor planes(const Tensor& image) { return image.permute({2, 0, 1}).to(torch::kFloat); }

TEST(ImageBatchTest, WithoutResizingIsTheDecodedImage) {
  auto flow = jpegs(1);
  const Tensor image = decode_image(bytes_view((*flow.next())[0]));
  const ImageBatchOptions options{.size = {.height = 40, .width = 60}, .crop = everything};
  const DataPoint batch = one_batch(jpegs(1) | image_batch(1, options));
  EXPECT_LT(largest_difference(batch[0][0], planes(image)), 1e-3);
  EXPECT_EQ(batch[1].item<int64_t>(), 0);
}

TEST(ImageBatchTest, MirrorsNormalisesAndArranges) {
  auto flow = jpegs(1);
  const Tensor image = decode_image(bytes_view((*flow.next())[0]));
  ImageBatchOptions options{.size = {.height = 40, .width = 60},
                            .crop = everything,
                            .mirror = 1,
                            .mean = {10, 20, 30},
                            .std = {2, 4, 5}};
  const Tensor mean = torch::tensor({10., 20., 30.}).view({3, 1, 1});
  const Tensor std = torch::tensor({2., 4., 5.}).view({3, 1, 1});
  const Tensor expected = (planes(image).flip(2) - mean) / std;
  const Tensor plain = one_batch(jpegs(1) | image_batch(1, options))[0];
  EXPECT_TRUE(plain.is_contiguous());
  EXPECT_LT(largest_difference(plain[0], expected), 1e-3);

  options.channels_last = true;
  const Tensor by_pixel = one_batch(jpegs(1) | image_batch(1, options))[0];
  EXPECT_TRUE(by_pixel.is_contiguous(torch::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::equal(by_pixel, plain));

  options.color = ImageColor::kBgr;
  options.mean = {30, 20, 10};
  options.std = {5, 4, 2};
  EXPECT_TRUE(torch::equal(one_batch(jpegs(1) | image_batch(1, options))[0], plain.flip(1)));

  options.dtype = torch::kByte;
  options.color = ImageColor::kRgb;
  const Tensor raw = one_batch(jpegs(1) | image_batch(1, options))[0];
  EXPECT_TRUE(torch::equal(raw[0].contiguous(), image.permute({2, 0, 1}).flip(2).contiguous()))
      << "bytes are not normalised";
}

// Numbers by hand: each result is the mean of what it covers, weighted by a triangle.
TEST(ImageBatchTest, ResizesByLinearInterpolation) {
  const auto resized = [](std::vector<int> row, int64_t width, bool antialias) {
    Tensor image = torch::empty({8, static_cast<int64_t>(row.size()) * 8, 3}, torch::kByte);
    for (size_t i = 0; i < row.size(); ++i) {
      image.narrow(1, static_cast<int64_t>(i) * 8, 8).fill_(row[i]);  // whole blocks: exact
    }
    const auto flow = FromList({{bytes(encode_jpeg(image, {.quality = 100}))}});
    const ImageBatchOptions options{
        .size = {.height = 8, .width = width}, .crop = everything, .antialias = antialias};
    return one_batch(flow | image_batch(1, options))[0][0][0][0].to(torch::kDouble);
  };
  // Twice as large: a quarter of the neighbour.
  EXPECT_LT(largest_difference(resized({0, 200}, 32, true).narrow(0, 13, 6),
                               torch::tensor({0., 0., 50., 150., 200., 200.})),
            3);
  // Half as large: all pixels count, or the nearest two.
  EXPECT_LT(largest_difference(resized({0, 200, 0}, 12, true).narrow(0, 2, 4),
                               torch::tensor({0., 25., 175., 200.})),
            3);
  EXPECT_LT(largest_difference(resized({0, 200, 0}, 12, false).narrow(0, 2, 4),
                               torch::tensor({0., 0., 200., 200.})),
            3);
}

TEST(ImageBatchTest, ReducedDecodingShowsTheSamePlace) {
  const Tensor image = picture(500, 600);
  const std::string jpeg = encode_jpeg(image, {.horizontal = 1, .vertical = 1});
  const auto cut = [&](ImageSize size) {
    const ImageBatchOptions options{.size = size, .crop = [](ImageSize, Rng&) {
                                      return Rectangle{
                                          .left = 61, .top = 37, .width = 421, .height = 403};
                                    }};
    return one_batch(FromList({{bytes(jpeg)}}) | image_batch(1, options))[0][0];
  };
  // Made of the whole size, and of an eighth.
  const Tensor fine = torch::adaptive_avg_pool2d(cut({.height = 400, .width = 400}), {25, 25});
  const Tensor coarse = torch::adaptive_avg_pool2d(cut({.height = 50, .width = 50}), {25, 25});
  EXPECT_LT((fine - coarse).abs().mean().item<double>(), 4);
}

TEST(ImageBatchTest, KeepsTheContractWhateverTheThreads) {
  const auto make = [](int64_t threads) {
    return jpegs(7) | image_batch(3, {.size = {.height = 16, .width = 24},
                                      .mirror = 0.5,
                                      .threads = threads,
                                      .remainder = true,
                                      .seed = 5});
  };
  const MakeDataFlow three = [&] { return make(3); };
  expect_passes_repeat(three);
  expect_restarts_in_mid_pass(three);
  expect_true_size(three);
  expect_skips_as_if_read(three);
  expect_destroyed_cleanly(three);
  const auto one = make(1);
  EXPECT_TRUE(same(collect(*one), collect(*make(3))));
  EXPECT_EQ(one->size(), 3);
}

TEST(ImageBatchTest, BadImagesAreAnErrorOrLeftOut) {
  const auto flow = [] {
    std::vector<DataPoint> points;
    auto good = jpegs(5);
    while (auto point = good.next()) points.push_back(*point);
    points[2][0] = bytes(std::string(bytes_view(points[2][0])).substr(0, 700));
    return FromList(std::move(points));
  };
  ImageBatchOptions options{.size = {.height = 16, .width = 24}, .crop = everything};
  const auto throwing = flow() | image_batch(2, options);
  EXPECT_TRUE(throwing->next());
  EXPECT_ERROR(throwing->next(), "datapoint 2 of the pass");
  options.on_error = OnError::kSkip;
  options.channels_last = true;
  const auto skipping = flow() | image_batch(2, options);
  std::vector<int64_t> labels;
  while (const auto batch = skipping->next()) {
    EXPECT_TRUE((*batch)[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
    for (int64_t i = 0; i < 2; ++i) labels.push_back((*batch)[1][i].item<int64_t>());
  }
  EXPECT_THAT(labels, testing::ElementsAre(0, 1, 3, 4));
}

TEST(ImageBatchTest, ReadsFilesInItsThreads) {
  const TempDir dir;
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_directory(dir / name);
    write_file_atomically(dir / name / "1.jpg", encode_jpeg(picture(30, 30)));
  }
  const auto flow = ImageFolderFiles(dir.path()) |
                    image_batch(2, {.size = {.height = 8, .width = 8}, .reads_files = true});
  const DataPoint batch = *flow->next();
  EXPECT_EQ(batch[0].sizes(), (std::vector<int64_t>{2, 3, 8, 8}));
  EXPECT_TRUE(torch::equal(batch[1], torch::tensor({0, 1})));
  write_file_atomically(dir / "b/1.jpg", "\xff\xd8 no more");
  flow->start(0);
  EXPECT_ERROR(flow->next(), (dir / "b/1.jpg").string());
}

TEST(ImageBatchTest, OptionsThatMakeNoSenseAreRefused) {
  EXPECT_ERROR(image_batch(4, {.size = {.height = 0, .width = 5}}), "0 x 5");
  EXPECT_ERROR(image_batch(4, {.mirror = 2}), "in 0..1, got 2");
  EXPECT_ERROR(image_batch(4, {.dtype = torch::kHalf}), "Choose at::kFloat or at::kByte");
  EXPECT_ERROR(image_batch(4, {.std = {1, 0, 1}}), "must be positive");
  EXPECT_ERROR(image_batch(0), "batch size must be positive");
  EXPECT_ERROR(jpegs(3) | image_batch(4), "a pass has 3 datapoints, too few");
}

TEST(CentralAreaTest, IsInTheMiddleAndOfTheShape) {
  Rng rng(0, 0);
  EXPECT_EQ(central_area({.height = 224, .width = 224})({.height = 375, .width = 500}, rng),
            (Rectangle{.left = 62, .top = 0, .width = 375, .height = 375}));
  EXPECT_EQ(central_area({.height = 224, .width = 224}, 0.5)({.height = 400, .width = 300}, rng),
            (Rectangle{.left = 75, .top = 125, .width = 150, .height = 150}));
  EXPECT_EQ(central_area({.height = 100, .width = 200})({.height = 400, .width = 400}, rng),
            (Rectangle{.left = 0, .top = 100, .width = 400, .height = 200}));
}

TEST(FillBatchTest, RowsAreWrittenInPlace) {
  const auto flow = numbers(5) | fill_batch({.shape = {2}, .dtype = torch::kLong},
                                            [](DataPoint point, Rng&, Tensor& row) {
                                              row.fill_(point[0].item<int64_t>());
                                              return DataPoint{point[0] * 10};
                                            },
                                            2, {.threads = 2, .remainder = true});
  const auto batches = collect(*flow);
  ASSERT_EQ(batches.size(), 3);
  EXPECT_TRUE(same(batches[1], {torch::tensor({{2, 2}, {3, 3}}), torch::tensor({20, 30})}));
  EXPECT_TRUE(same(batches[2], {torch::tensor({{4, 4}}), torch::tensor({40})}));
}

}  // namespace
}  // namespace tensorpack::test
