// SPDX-License-Identifier: Apache-2.0
// A training that is resumed by a changed program says what has changed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/scheduled_hyper_param_setter.h"
#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/gradient_processor.h"
#include "tensorpack/train/auto_resume.h"
#include "tensorpack/train/multi_gpu_trainers.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

// What a user may change between two runs.
struct Program {
  double learning_rate = 0.01;
  double momentum = 0.9;
  std::optional<uint64_t> seed = 7;
  int64_t size = 96;
  int64_t batch = 4;
  int64_t buffer = 16;
  int64_t steps_per_epoch = 5;
  int64_t units = 8;
  double decay = 0.5;
  bool has_relu = false;
  bool has_layer = false;
  bool has_augmentation = false;
  bool clips = false;
  double schedule_end = 6;
  // Of these no program depends.
  int towers = 1;
  bool reads_ahead = false;
  int64_t max_epoch = 1;
};

class SameProgramTest : public testing::Test {
 protected:
  ~SameProgramTest() override { reset_logger_dir(); }

  static DataFlowPtr data(const Program& program) {
    DataFlowPtr flow =
        FakeData({{.shape = {4}}, {}}, {.size = program.size, .seed = 3}) | shuffle(program.buffer);
    if (program.has_augmentation) {
      flow = std::move(flow) | map([](DataPoint point) { return point; });
    }
    flow = std::move(flow) | batch(program.batch);
    return program.reads_ahead ? std::move(flow) | prefetch(3) : std::move(flow);
  }

  static at::Tensor cost(const Program& program, const at::Tensor& x, const at::Tensor& y) {
    at::Tensor l = FullyConnected("a", x, {.units = program.units});
    if (program.has_relu) l = at::relu(l);
    if (program.has_layer) l = FullyConnected("more", l, {.units = program.units});
    return named("cost", (FullyConnected("b", l, {.units = 1}).squeeze(1) - y).square().mean());
  }

  static Owned<Optimizer> optimizer(const Program& program) {
    SGD sgd({.lr = program.learning_rate, .momentum = program.momentum});
    if (!program.clips) return sgd;
    return apply_grad_processors(std::move(sgd), {GlobalNormClip(1)});
  }

  TrainConfig config(const Program& program) const {
    return {.model =
                Model{.inputs = {{"x", {-1, 4}}, {"y", {-1}}},
                      .build_graph = [program](const at::Tensor& x,
                                               const at::Tensor& y) { return cost(program, x, y); },
                      .optimizer = optimizer(program)},
            .data = QueueInput(data(program)),
            .callbacks = {ScheduledHyperParamSetter(
                              "learning_rate", schedule::linear({.from = program.learning_rate,
                                                                 .to = 0,
                                                                 .length = program.schedule_end})),
                          ModelSaver()},
            .extra_callbacks = OwnedList<Callback>(),
            .monitors = OwnedList<MonitorBase>(),
            .steps_per_epoch = program.steps_per_epoch,
            .max_epoch = program.max_epoch};
  }

  void run(const Program& program, AutoResumeOptions options = {}) {
    set_logger_dir(dir_.path(), LogDirAction::kKeep);
    program.seed ? set_global_seed(*program.seed) : set_global_seed(std::random_device()());
    AutoResumeTrainConfig config(this->config(program), options);
    if (program.towers == 1) {
      launch_train_with_config(std::move(config), SimpleTrainer());
    } else {
      launch_train_with_config(std::move(config),
                               SyncMultiGPUTrainerReplicated(Devices::cpu(program.towers)));
    }
  }

  // The warning, from its first line to the last, that a changed program gets.
  std::string warning_of(Program changed) {
    changed.max_epoch = 2;
    const std::string log = stdout_of([&] {
      run(Program());
      run(changed, {.strict = false});
    });
    const size_t begin = log.find("The program has changed");
    if (begin == std::string::npos) return "";
    size_t end = log.find('\n', begin);
    while (log.compare(end + 1, 2, "  ") == 0) end = log.find('\n', end + 1);
    std::filesystem::remove_all(dir_.path());
    std::filesystem::create_directories(dir_.path());
    return log.substr(begin, end - begin);
  }

  TempDir dir_;
};

TEST_F(SameProgramTest, TheSameProgramHasNothingToSay) {
  EXPECT_THAT(warning_of({}), IsEmpty());
  EXPECT_THAT(warning_of({.max_epoch = 4}), IsEmpty());
}

TEST_F(SameProgramTest, TowersAndReadingAheadAreNoPartOfIt) {
  EXPECT_THAT(warning_of({.towers = 2}), IsEmpty());
  EXPECT_THAT(warning_of({.reads_ahead = true}), IsEmpty());
}

TEST_F(SameProgramTest, EachChangeIsTold) {
  const auto told = [&](const Program& changed, const char* line) {
    EXPECT_THAT(warning_of(changed), HasSubstr(line));
  };
  told({.learning_rate = 0.1}, "\n  lr was 0.01, is 0.1");
  told({.momentum = 0.5}, "\n  momentum was 0.9, is 0.5");
  told({.seed = 8}, "\n  seed was 7, is 8");
  told({.seed = {}}, "\n  seed was 7, is ");
  told({.size = 64},
       "\n  size of data: was 'FakeData: 96 datapoints', is 'FakeData: 64 datapoints'");
  told({.batch = 8}, "\n  data: was 'Batch(4)', is 'Batch(8)'");
  told({.buffer = 8}, "\n  data: was 'Shuffle(16)', is 'Shuffle(8)'");
  told({.steps_per_epoch = 6}, "\n  loop: steps_per_epoch was 5, is 6");
  told({.has_relu = true}, "aten::relu");
  told({.has_augmentation = true}, "\n  data: new is 'Map'");
  told({.has_layer = true}, "\n  model: new is 'variable 'more/W' [8, 8] Float'");
  told({.clips = true}, "\n  step: new is ");
  told({.schedule_end = 3}, "\n  ScheduledHyperParamSetter: learning_rate at epoch 1 was ");
}

TEST_F(SameProgramTest, ItIsTenLinesAtMost) {
  const std::string warning = warning_of({.learning_rate = 0.1,
                                          .momentum = 0.5,
                                          .seed = 8,
                                          .size = 64,
                                          .batch = 8,
                                          .buffer = 8,
                                          .steps_per_epoch = 6,
                                          .has_layer = true,
                                          .has_augmentation = true});
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 9) << warning;
  EXPECT_THAT(warning, HasSubstr(" more changes"));
}

TEST_F(SameProgramTest, ItIsAnErrorIfAsked) {
  const std::string log = stdout_of([&] {
    run(Program());
    EXPECT_THAT([&] { run({.momentum = 0.5, .max_epoch = 2}, {.same_program = true}); },
                ThrowsMessage<Error>(HasSubstr("\n  momentum was 0.9, is 0.5")));
    run({.max_epoch = 2}, {.same_program = true});
  });
  EXPECT_EQ(load_checkpoint(dir_.path()).epoch_num, 2) << log;
}

}  // namespace
}  // namespace tensorpack
