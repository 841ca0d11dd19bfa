// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/monitors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/utils/error.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

class Recorder final : public MonitorBase {
 public:
  explicit Recorder(std::vector<std::string>* seen) : seen_(seen) {}
  void process_scalar(const std::string& name, double value, const LoopState& loop) override {
    seen_->push_back(fmt::format("{}={} at {}", name, value, loop.global_step));
  }
  void process_image(const std::string& name, const Image&, const LoopState&) override {
    seen_->push_back(name);
  }

 private:
  std::vector<std::string>* seen_;
};

TEST(MonitorsTest, EveryMonitorGetsEveryScalarWithItsStep) {
  std::vector<std::string> seen;
  LoopState loop;
  Monitors monitors({Recorder(&seen), Recorder(&seen)}, loop);
  loop.global_step = 3;
  monitors.put_scalar("cost", 0.5);
  EXPECT_THAT(seen, ElementsAre("cost=0.5 at 3", "cost=0.5 at 3"));
}

TEST(MonitorsTest, RemembersTheHistoryOfAScalar) {
  LoopState loop;
  Monitors monitors({}, loop);
  monitors.put_scalar("cost", 2);
  loop.global_step = 7;
  monitors.put_scalar("cost", 1);
  EXPECT_EQ(monitors.get_latest("cost"), 1);
  EXPECT_THAT(monitors.get_history("cost"), ElementsAre(Pair(0, 2), Pair(7, 1)));
}

TEST(MonitorsTest, AValueOfAStepIsReportedOnce) {
  std::vector<std::string> seen;
  LoopState loop;
  Monitors monitors({Recorder(&seen)}, loop);
  monitors.put_scalar("learning_rate", 0.5);
  monitors.put_scalar("learning_rate", 0.5);
  loop.global_step = 3;
  monitors.put_scalar("learning_rate", 0.5);
  EXPECT_THAT(seen, ElementsAre("learning_rate=0.5 at 0", "learning_rate=0.5 at 3"));
  EXPECT_THAT(monitors.get_history("learning_rate"), ElementsAre(Pair(0, 0.5), Pair(3, 0.5)));
}

TEST(MonitorsTest, OfTwoValuesOfAStepTheLastCounts) {
  std::vector<std::string> seen;
  LoopState loop;
  Monitors monitors({Recorder(&seen)}, loop);
  for (const double value : {1., 2., 1.}) monitors.put_scalar("learning_rate", value);
  EXPECT_THAT(seen,
              ElementsAre("learning_rate=1 at 0", "learning_rate=2 at 0", "learning_rate=1 at 0"));
  EXPECT_THAT(monitors.get_history("learning_rate"), ElementsAre(Pair(0, 1)));
}

TEST(MonitorsTest, UnknownScalarNamesTheNearest) {
  LoopState loop;
  Monitors monitors({}, loop);
  monitors.put_scalar("accuracy", 1);
  EXPECT_FALSE(monitors.contains("acuracy"));
  EXPECT_THAT([&] { monitors.get_latest("acuracy"); },
              ThrowsMessage<Error>(HasSubstr("Did you mean 'accuracy'?")));
}

TEST(MonitorsTest, HyperParamsOfTheUserAreReportedWithThoseOfTheRun) {
  FakeTrainer trainer;
  const auto put = [](Callback& callback) {
    callback.trainer().monitors().put_hyper_params({{"augmentation", "flip"}, {"device", "mine"}});
  };
  trainer.train({CallbackFactory({.before_train = put})});
  const HyperParams& params = trainer.monitors().hyper_params();
  EXPECT_EQ(params.at("augmentation"), "flip");
  EXPECT_EQ(params.at("device"), "mine") << "what a user says is not replaced";
  EXPECT_EQ(params.at("trainer"), "FakeTrainer");
}

TEST(MonitorsTest, AStackOfImagesIsNumbered) {
  std::vector<std::string> seen;
  LoopState loop;
  Monitors monitors({Recorder(&seen)}, loop);
  monitors.put_image("stack", at::zeros({2, 4, 5}));
  monitors.put_image("color", at::zeros({4, 5, 3}));
  monitors.put_image("batch", at::zeros({1, 4, 5, 3}));
  EXPECT_THAT(seen, ElementsAre("stack/0", "stack/1", "color", "batch"));
}

std::vector<std::string> sizes_of(const std::vector<Image>& images) {
  std::vector<std::string> sizes;
  for (const Image& image : images) {
    sizes.push_back(fmt::format("{}x{}x{}", image.height(), image.width(), image.channels()));
  }
  return sizes;
}

TEST(MonitorsTest, TensorsOfImagesAreLaidOutAsThoseOfLayers) {
  EXPECT_THAT(sizes_of(to_images(at::zeros({2, 3, 8, 4}))), ElementsAre("8x4x3", "8x4x3"));
  EXPECT_THAT(sizes_of(to_images(at::zeros({2, 1, 8, 3}))), ElementsAre("8x3x1", "8x3x1"));
  EXPECT_THAT(sizes_of(to_images(at::zeros({3, 8, 9}))), ElementsAre("8x9x3"));
  EXPECT_THAT(sizes_of(to_images(at::zeros({2, 8, 9}))), ElementsAre("8x9x1", "8x9x1"));
  const at::Tensor pixels = at::arange(2 * 3 * 8 * 4).reshape({2, 3, 8, 4});
  EXPECT_TRUE(at::equal(to_images(pixels)[1].pixels(), pixels[1].permute({1, 2, 0}).to(at::kByte)));
}

TEST(MonitorsTest, DecodedImagesAreTakenIfTheirLayoutIsSaid) {
  constexpr ImageLayout kDecoded = ImageLayout::kNHWC;
  EXPECT_THAT(sizes_of(to_images(at::zeros({2, 3, 8, 4}), kDecoded)),
              ElementsAre("3x8x4", "3x8x4"));
  EXPECT_THAT(sizes_of(to_images(at::zeros({8, 9, 3}), kDecoded)), ElementsAre("8x9x3"));
  EXPECT_THAT(sizes_of(to_images(at::zeros({2, 8, 9}), kDecoded)), ElementsAre("8x9x1", "8x9x1"));
  EXPECT_THAT(
      [] {
        to_images(at::zeros({480, 640, 3}));
      },
      ThrowsMessage<Error>(HasSubstr("if it is laid out so, pass ImageLayout::kNHWC")));
  EXPECT_THAT(
      [] {
        to_images(at::zeros({2, 3, 8, 8}), kDecoded);
      },
      ThrowsMessage<Error>(HasSubstr("pass ImageLayout::kNCHW")));
  EXPECT_THAT(
      [] {
        to_images(at::zeros({2, 5, 8, 8}));
      },
      ThrowsMessage<Error>(HasSubstr("[2, 5, 8, 8] is no image")));
}

TEST(MonitorsTest, PixelsAreCutToBytes) {
  const Image image(at::tensor({-3.0, 1.6, 300.0, std::nan("")}).view({2, 2}));
  EXPECT_TRUE(image.pixels().equal(at::tensor({0, 2, 255, 0}, at::kByte).view({2, 2, 1})));
  EXPECT_EQ(image.png().substr(1, 3), "PNG");
}

TEST(MonitorsTest, HistogramsCountEveryFiniteValue) {
  const Histogram histogram =
      make_histogram(at::tensor({0.0, 1.0, 1.5, 4.0, std::nan("")}, at::kDouble), 4);
  EXPECT_THAT(histogram.edges, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(histogram.counts, ElementsAre(1, 2, 0, 1));
  EXPECT_EQ(histogram.count, 4);
  EXPECT_EQ(histogram.not_finite, 1);
  EXPECT_EQ(histogram.sum, 6.5);
  EXPECT_EQ(histogram.sum_of_squares, 19.25);
}

TEST(MonitorsTest, EqualValuesHaveOneBinAroundThem) {
  const Histogram histogram = make_histogram(at::full({3}, 2.0));
  EXPECT_THAT(histogram.edges, ElementsAre(1.5, 2.5));
  EXPECT_THAT(histogram.counts, ElementsAre(3));
  EXPECT_TRUE(make_histogram(at::empty({0})).counts.empty());
}

TEST(MonitorsTest, ImagesHaveTwoToFourDimensions) {
  std::vector<std::string> seen;
  LoopState loop;
  Monitors monitors({Recorder(&seen)}, loop);
  monitors.put_image("sample", at::zeros({4, 4}));
  EXPECT_THAT(seen, ElementsAre("sample"));
  EXPECT_THAT([&] { monitors.put_image("row", at::zeros({4})); },
              ThrowsMessage<Error>(HasSubstr("'row': [Image] a tensor with 1 dimension")));
}

}  // namespace
}  // namespace tensorpack
