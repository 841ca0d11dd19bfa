// SPDX-License-Identifier: Apache-2.0
// What a program needs that includes nothing else.
#include <gmock/gmock.h>

#include "tensorpack/tensorpack.h"

namespace a_program {
namespace {

using namespace tensorpack;          // NOLINT: as in a program
using namespace tensorpack::imgaug;  // NOLINT

TEST(UmbrellaHeaderTest, HelpersThatTutorialsNameComeWithIt) {
  const TempDir dir;
  const ScopedEnv data("TENSORPACK_DATASET", dir.path().string());
  EXPECT_EQ(dataset_path(), dir.path());
  EXPECT_EQ(humanize_time(0), "0 seconds");
  StatCounter counter;
  counter.feed(3);
  EXPECT_EQ(counter.average(), 3);
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.push(7));
  EXPECT_EQ(queue.pop(), 7);
  const std::vector<uint8_t> pixels(4);
  EXPECT_TRUE(encode_png(pixels, 2, 2, 1).starts_with("\x89PNG"));
  write_file_atomically(dir / "stats.json", R"([{"cost": 0.5}])");
  EXPECT_EQ(JSONWriter::load_existing_json(dir.path())->back().at("cost"), 0.5);
}

TEST(UmbrellaHeaderTest, InterpolationsOfImagesAndOfSchedulesHaveNamesOfTheirOwn) {
  const ScheduledHyperParamSetterOptions options{.interp = Interp::kLinear};
  EXPECT_EQ(options.interp, Interp::kLinear);
  EXPECT_NE(Interpolation::kLinear, Interpolation::kCubic);
}

}  // namespace
}  // namespace a_program
