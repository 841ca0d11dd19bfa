// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/process_tensors.h"

#include <gmock/gmock.h>

#include "tensorpack/callbacks/dump_as_image.h"
#include "tensorpack/callbacks/estimated_time_left.h"
#include "tensorpack/callbacks/hooks.h"
#include "tensorpack/callbacks/resource_trackers.h"
#include "tensorpack/callbacks/throughput_tracker.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::ThrowsMessage;

ProcessTensors::Function collect(std::vector<double>& into) {
  return [&into](const std::vector<at::Tensor>& values) {
    for (const at::Tensor& value : values) into.push_back(value.item<double>());
  };
}

TEST(ProcessTensorsTest, SeesTheValuesOfEveryRun) {
  std::vector<double> seen;
  FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = 1});
  trainer.train({ProcessTensors({"cost", "w"}, collect(seen))});
  EXPECT_THAT(seen, ElementsAre(10, 1, 20, 2));
}

TEST(ProcessTensorsTest, AnUnknownNameFailsBeforeTheFirstStep) {
  FakeTrainer trainer;
  EXPECT_THAT([&] { trainer.train({TensorPrinter({"costs"})}); },
              ThrowsMessage<Error>(HasSubstr("[TensorPrinter] no tensor, input or variable named "
                                             "'costs'")));
  EXPECT_EQ(trainer.global_step(), 0);
  EXPECT_THROW(TensorPrinter(std::vector<std::string>()), Error);
  EXPECT_THROW(ProcessTensors({"cost"}, nullptr), Error);
}

TEST(PeriodicRunHooksTest, JoinsEveryKthRun) {
  std::vector<double> seen;
  FakeTrainer trainer({.steps_per_epoch = 7, .max_epoch = 1});
  trainer.train({PeriodicRunHooks(ProcessTensors({"w"}, collect(seen)), 3)});
  EXPECT_THAT(seen, ElementsAre(3, 6));
  EXPECT_THROW(PeriodicRunHooks(TensorPrinter({"w"}), 0), Error);
}

class CountingHook final : public Hook {
 public:
  explicit CountingHook(int* runs) : runs_(runs) {}
  void after_run(RunContext&, const FetchedValues&) override { ++*runs_; }

 private:
  int* runs_;
};

TEST(HookToCallbackTest, AHookJoinsRuns) {
  int runs = 0;
  FakeTrainer({.steps_per_epoch = 3, .max_epoch = 1}).train({HookToCallback(CountingHook(&runs))});
  EXPECT_EQ(runs, 3);
}

TEST(TensorPrinterTest, LogsNamesAndValues) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
  const std::string text = stdout_of([&] { trainer.train({TensorPrinter({"scope/twice"})}); });
  EXPECT_THAT(text, HasSubstr("global_step 1:\nscope/twice:\n2\n"));
}

TEST(SimpleMovingAverageTest, ReportsTheMeanOfEveryWindow) {
  FakeTrainer trainer({.steps_per_epoch = 5, .max_epoch = 1});
  trainer.train({SimpleMovingAverage({"cost"}, 2)});
  EXPECT_THAT(trainer.monitors().get_history("cost/SMA"), ElementsAre(Pair(2, 15), Pair(4, 35)));
  FakeTrainer another;
  EXPECT_THAT([&] { another.train({SimpleMovingAverage({"vector"}, 2)}); },
              ThrowsMessage<Error>(HasSubstr("'vector' is not a scalar")));
  EXPECT_THROW(SimpleMovingAverage({"cost"}, 0), Error);
}

class InLogDirTest : public testing::Test {
 protected:
  InLogDirTest() {
    stdout_of([&] { set_logger_dir(dir_.path(), LogDirAction::kKeep); });
  }
  ~InLogDirTest() override { reset_logger_dir(); }
  TempDir dir_;
};

TEST_F(InLogDirTest, DumpTensorsWritesAFilePerRun) {
  FakeTrainer({.steps_per_epoch = 2, .max_epoch = 1}).train({DumpTensors({"cost", "vector"})});
  const auto file = read_safetensors(dir_ / "DumpTensor-2.safetensors");
  EXPECT_EQ(file.tensors.at("cost").item<float>(), 20);
  EXPECT_TRUE(file.tensors.at("vector").equal(at::full({3}, 2.0)));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "DumpTensor-1.safetensors"));
}

TEST(DumpTensorsTest, NeedsALogDirectory) {
  reset_logger_dir();
  FakeTrainer trainer;
  EXPECT_THAT([&] { trainer.train({DumpTensors({"cost"})}); },
              ThrowsMessage<Error>(HasSubstr("there is no log directory")));
}

class ImageRecorder final : public MonitorBase {
 public:
  explicit ImageRecorder(std::vector<std::string>* seen) : seen_(seen) {}
  void process_image(const std::string& name, const Image& image, const LoopState&) override {
    seen_->push_back(fmt::format("{} {}x{} {}", name, image.height(), image.width(),
                                 image.pixels()[0][0][0].item<int>()));
  }

 private:
  std::vector<std::string>* seen_;
};

TEST_F(InLogDirTest, DumpTensorAsImageTakesTheLastStepOfTheEpoch) {
  std::vector<std::string> seen;
  const auto as_picture = [](const at::Tensor& vector) { return vector.view({1, 3}) / 8; };
  FakeTrainer({.steps_per_epoch = 2, .max_epoch = 2})
      .train({DumpTensorAsImage("vector", {.prefix = "v", .map_func = as_picture, .scale = 80})},
             {ImageRecorder(&seen)});
  EXPECT_THAT(seen, ElementsAre("v 1x3 20", "v 1x3 40"));
  EXPECT_EQ(read_file(dir_ / "v-ep002.png").substr(1, 3), "PNG");
}

TEST_F(InLogDirTest, DumpParamAsImageShowsAVariable) {
  std::vector<std::string> seen;
  const auto two = [](const at::Tensor& w) { return w.view({1, 1, 1, 1}).repeat({2, 1, 1, 1}); };
  FakeTrainer({.steps_per_epoch = 1, .max_epoch = 1})
      .train({DumpParamAsImage("w", {.map_func = two})}, {ImageRecorder(&seen)});
  EXPECT_THAT(seen, ElementsAre("w/0 1x1 255", "w/1 1x1 255"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "w-ep001-1.png"));
}

TEST(ThroughputTrackerTest, ReportsStepsOrSamples) {
  FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = 1});
  trainer.train({ThroughputTracker(), ThroughputTracker({.samples_per_step = 8})});
  EXPECT_GT(trainer.monitors().get_latest("Throughput (steps/sec)"), 0);
  EXPECT_GT(trainer.monitors().get_latest("Throughput (samples/sec)"),
            trainer.monitors().get_latest("Throughput (steps/sec)"));
  EXPECT_THROW(ThroughputTracker({.samples_per_step = -1}), Error);
}

TEST(EstimatedTimeLeftTest, SpeaksUntilTheLastEpoch) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 3});
  const std::string text = stdout_of([&] { trainer.train({EstimatedTimeLeft()}); });
  size_t count = 0;
  for (size_t at = 0; (at = text.find("Estimated time left", at)) != std::string::npos; ++at)
    ++count;
  EXPECT_EQ(count, 2u);
  EXPECT_THROW(EstimatedTimeLeft({.last_k_epochs = 0}), Error);
}

TEST(ResourceTrackersTest, ReportWhatTheHostGives) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
  const std::string text = stdout_of([&] {
    trainer.train({PeakMemoryTracker(), HostResourceTracker(), GPUUtilizationTracker()});
  });
  EXPECT_THAT(text, testing::ContainsRegex("Free memory of the host: [0-9.]+ [MGT]iB\\."));
  EXPECT_GT(trainer.monitors().get_latest("PeakMemory(MB)/cpu"), 1);
  EXPECT_GT(trainer.monitors().get_latest("HostFreeMemory (GB)"), 0);
  EXPECT_GE(trainer.monitors().get_latest("HostCPU (cores)"), 0);
  EXPECT_THROW(GPUUtilizationTracker({-1}), Error);
}

}  // namespace
}  // namespace tensorpack
