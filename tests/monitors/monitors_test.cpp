// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/monitors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/utils/error.h"

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
  void process_image(const std::string& name, const at::Tensor&, const LoopState&) override {
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

TEST(MonitorsTest, UnknownScalarNamesTheNearest) {
  LoopState loop;
  Monitors monitors({}, loop);
  monitors.put_scalar("accuracy", 1);
  EXPECT_FALSE(monitors.contains("acuracy"));
  EXPECT_THAT([&] { monitors.get_latest("acuracy"); },
              ThrowsMessage<Error>(HasSubstr("Did you mean 'accuracy'?")));
}

TEST(MonitorsTest, ImagesHaveTwoToFourDimensions) {
  std::vector<std::string> seen;
  LoopState loop;
  Monitors monitors({Recorder(&seen)}, loop);
  monitors.put_image("sample", at::zeros({4, 4}));
  EXPECT_THAT(seen, ElementsAre("sample"));
  EXPECT_THAT([&] { monitors.put_image("row", at::zeros({4})); },
              ThrowsMessage<Error>(HasSubstr("'row' has 1 dimensions")));
}

}  // namespace
}  // namespace tensorpack
