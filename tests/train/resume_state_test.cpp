// SPDX-License-Identifier: Apache-2.0
// A resumed training goes on with the first batch that was not used, and with what callbacks saved.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <latch>
#include <memory>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/process_tensors.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/train/auto_resume.h"
#include "tensorpack/train/multi_gpu_trainers.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/train/tower_trainer.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kPositionKey = "callback/InputSourceCallback";

FromList numbers(int64_t count) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < count; ++i) points.push_back({at::full({1}, i, at::kFloat)});
  return FromList(std::move(points));
}

// Writes down the batches that were taken from it. A source of one's own.
class Recorded final : public InputSource {
 public:
  explicit Recorded(std::vector<int64_t>& taken) : source_(numbers(7)), taken_(&taken) {}
  void reset_state(int64_t position = 0) override { source_.reset_state(position); }
  std::optional<DataPoint> next() override {
    auto batch = source_.next();
    taken_->push_back(batch->at(0).item<int64_t>());
    return batch;
  }
  int64_t position() const override { return source_.position(); }
  void stop() override { source_.stop(); }

 private:
  QueueInput source_;
  std::vector<int64_t>* taken_;
};

// Takes `batches` batches in each step, of which one hooked run is the step.
class SeveralBatchesTrainer final : public TowerTrainer {
 public:
  SeveralBatchesTrainer(Owned<InputSource> input, int batches) : batches_(batches) {
    setup_tower({{"x", {-1}}}, std::move(input), [](const at::Tensor& x) {
      at::NoGradGuard no_grad;
      get_variable("sum", {}, {.role = VariableRole::kModel}).add_(x.sum());
    });
    op_ = define("add", {});
  }
  void run_step() override {
    hooked_sess().run(batches_ > 0 ? op_ : Op::nothing());
    for (int i = 1; i < batches_; ++i) sess().run(op_);
  }

 private:
  int batches_;
  Op op_;
};

class ResumeStateTest : public testing::Test {
 protected:
  ResumeStateTest() { set_logger_dir(dir_.path(), LogDirAction::kKeep); }
  ~ResumeStateTest() override { reset_logger_dir(); }

  // Trains epochs of three steps up to number `epochs`, resuming what is there: the batches taken.
  std::vector<int64_t> train(int batches_per_step, int64_t epochs) {
    std::vector<int64_t> taken;
    SeveralBatchesTrainer trainer(Recorded(taken), batches_per_step);
    log_ = stdout_of([&] {
      AutoResumeTrainConfig config({.starting_epoch = 1, .max_epoch = epochs});
      trainer.train({.callbacks = {ModelSaver()},
                     .session_init = std::move(config.session_init),
                     .steps_per_epoch = 3,
                     .starting_epoch = config.starting_epoch,
                     .max_epoch = config.max_epoch});
    });
    return taken;
  }

  // Changes the state of the data in the latest checkpoint; removes it if there is no text.
  void set_position(const std::optional<std::string>& text) {
    Checkpoint checkpoint = load_checkpoint(dir_.path());
    checkpoint.extra.erase(kPositionKey);
    if (text) checkpoint.extra.emplace(kPositionKey, *text);
    CheckpointDirectory(dir_.path()).save(checkpoint);
  }

  TempDir dir_;
  std::string log_;
};

TEST_F(ResumeStateTest, AStepMayTakeSeveralBatches) {
  EXPECT_THAT(train(2, 2), ElementsAre(0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4));
  EXPECT_EQ(load_checkpoint(dir_.path()).extra.at(kPositionKey), "12")
      << "though 50 are read ahead";
  EXPECT_THAT(train(2, 3), ElementsAre(5, 6, 0, 1, 2, 3));
  EXPECT_THAT(log_, Not(HasSubstr("No position of the data")));
  EXPECT_EQ(load_checkpoint(dir_.path()).global_step, 9);
}

TEST_F(ResumeStateTest, AStepMayTakeNone) {
  EXPECT_THAT(train(0, 2), ElementsAre(0)) << "looked at";
  EXPECT_THAT(train(1, 3), ElementsAre(0, 1, 2)) << "the first batches were never used";
}

using Cost = std::function<at::Tensor(const at::Tensor& x)>;

std::string log_of_training(const Cost& cost, OwnedList<Callback> callbacks) {
  SimpleTrainer trainer;
  trainer.setup_graph({{"x", {-1}}}, QueueInput(numbers(7)), cost, SGD({.lr = 0.1}));
  return stdout_of([&] {
    trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 3, .max_epoch = 1});
  });
}

at::Tensor cost_of(const at::Tensor& x) { return (get_variable("w", {}) - x).square().mean(); }

constexpr const char* kUnsaved = "changes what no checkpoint has";

TEST_F(ResumeStateTest, StateThatNoCheckpointHasIsToldBeforeTheFirstStep) {
  const at::Tensor mean = at::zeros({5});
  const Cost keeps_mean = [&](const at::Tensor& x) {
    const VariableScope scope("norm");
    at::NoGradGuard no_grad;
    mean.mul_(0.9).add_(x.mean(), 0.1);
    at::AutoGradMode gradients(true);
    return cost_of(x - mean.mean());
  };
  EXPECT_THAT(log_of_training(keeps_mean, {}), Not(HasSubstr(kUnsaved))) << "nothing is saved";
  EXPECT_THAT(log_of_training(keeps_mean, {ModelSaver()}),
              HasSubstr("'train_op' changes what no checkpoint has: a tensor of shape [5] "
                        "(aten::mul_.Scalar in scope 'norm')."));
  const at::Generator generator = at::detail::createCPUGenerator(3);
  EXPECT_THAT(log_of_training(
                  [&](const at::Tensor& x) {
                    return cost_of(x + at::rand({1}, c10::optional<at::Generator>(generator)));
                  },
                  {ModelSaver()}),
              HasSubstr("'train_op' changes what no checkpoint has: a generator (aten::rand"));
}

TEST_F(ResumeStateTest, MemoryThatEveryStepFillsIsNoState) {
  const at::Tensor buffer = at::zeros({3});
  EXPECT_THAT(log_of_training(
                  [&](const at::Tensor& x) {
                    {
                      at::NoGradGuard no_grad;
                      buffer.copy_(x.mean().expand({3}));
                      buffer.add_(1);
                    }
                    return cost_of(x + buffer.sum() + at::rand({1}));
                  },
                  {ModelSaver()}),
              Not(HasSubstr(kUnsaved)));
  const at::Tensor half_filled = at::zeros({4});
  EXPECT_THAT(log_of_training(
                  [&](const at::Tensor& x) {
                    {
                      at::NoGradGuard no_grad;
                      half_filled.narrow(0, 0, 2).fill_(1);
                      half_filled.narrow(0, 2, 2).add_(1);
                    }
                    return cost_of(x + half_filled.sum());
                  },
                  {ModelSaver()}),
              HasSubstr("a tensor of shape [4]"));
}

TEST_F(ResumeStateTest, WithoutAPositionTheDataGoesOnAtTheStep) {
  train(2, 2);
  set_position(std::nullopt);
  EXPECT_THAT(train(1, 3), ElementsAre(6, 0, 1));
  EXPECT_THAT(log_, HasSubstr("has no state of these callbacks: InputSourceCallback."));
  EXPECT_THAT(log_, HasSubstr("it goes on at batch 6, the global_step."));
}

// As experience replay does, whose player begins with the training.
class FromCallback final : public DataFlow {
 public:
  explicit FromCallback(std::shared_ptr<std::latch> begun) : begun_(std::move(begun)) {}
  std::optional<DataPoint> next() override {
    begun_->wait();
    return DataPoint{at::ones({1})};
  }

 private:
  std::shared_ptr<std::latch> begun_;
};

TEST_F(ResumeStateTest, DataMayComeFromACallbackThatBeginsAfterTheInput) {
  for (const bool interruptible : {true, false}) {
    for (int64_t epochs = 1; epochs <= 2; ++epochs) {
      const auto begun = std::make_shared<std::latch>(1);
      CallbackFactory player({.before_train = [begun](Callback&) { begun->count_down(); }});
      launch_train_with_config(
          AutoResumeTrainConfig(
              {.model = Model{.inputs = {{"x", {-1}}},
                              .build_graph = [](const at::Tensor& x) { return cost_of(x); },
                              .optimizer = SGD({.lr = 0.01})},
               .data = FeedInput(FromCallback(begun), {.interruptible = interruptible}),
               .callbacks = {std::move(player), ModelSaver()},
               .steps_per_epoch = 3,
               .max_epoch = epochs}),
          SimpleTrainer());
      EXPECT_EQ(load_checkpoint(dir_.path()).extra.at(kPositionKey), std::to_string(3 * epochs));
    }
    for (const auto& file : fs::directory_iterator(dir_.path())) {
      if (file.path().extension() == ".safetensors") fs::remove(file);
    }
  }
}

TEST_F(ResumeStateTest, ADamagedPositionIsAnError) {
  train(1, 1);
  for (const char* text : {"abc", "-3", "99999999999999999999"}) {
    set_position(text);
    EXPECT_ERROR(train(1, 2), "[InputSourceCallback] its state in the checkpoint is damaged");
  }
}

// A training of epochs of twelve steps, one of the shuffled numbers in each.
class ResumeSeedTest : public ResumeStateTest {
 protected:
  // Makes steps up to number `steps`, after what is there: the numbers.
  std::vector<int64_t> take(int64_t steps, const std::function<void()>& in_step = {}) {
    std::vector<int64_t> taken;
    log_ = stdout_of([&] {
      // The data is made before the training, and looked at.
      DataFlowPtr flow = numbers(12) | shuffle();
      flow->next();
      SimpleTrainer trainer;
      trainer.setup_graph(
          {{"x", {1}}}, QueueInput(std::move(flow)),
          [](const at::Tensor& x) { return (get_variable("w", {}) * named("seen", x + 0)).sum(); },
          SGD({.lr = 0.1}));
      AutoResumeTrainConfig config({.starting_epoch = 1, .max_epoch = steps});
      trainer.train(
          {.callbacks = {ModelSaver(), ProcessTensors({"seen"},
                                                      [&](const std::vector<at::Tensor>& values) {
                                                        taken.push_back(values[0].item<int64_t>());
                                                        if (in_step) in_step();
                                                      })},
           .session_init = std::move(config.session_init),
           .steps_per_epoch = 1,
           .starting_epoch = config.starting_epoch,
           .max_epoch = config.max_epoch});
    });
    return taken;
  }

  void set_seed_of_checkpoint(const std::optional<std::string>& text) {
    Checkpoint checkpoint = load_checkpoint(dir_.path());
    checkpoint.extra.erase("seed");
    if (text) checkpoint.extra.emplace("seed", *text);
    CheckpointDirectory(dir_.path()).save(checkpoint);
  }

  ~ResumeSeedTest() override { set_global_seed(0); }  // as the tests begin
};

std::vector<int64_t> order_of(uint64_t seed) {
  set_global_seed(seed);
  std::vector<int64_t> order;
  const auto flow = numbers(12) | shuffle();
  while (auto point = flow->next()) order.push_back((*point)[0].item<int64_t>());
  return order;
}

std::vector<int64_t> part(const std::vector<int64_t>& all, int64_t begin, int64_t end) {
  return {all.begin() + begin, all.begin() + end};
}

TEST_F(ResumeSeedTest, TheDataGoesOnInTheOrderOfTheCheckpoint) {
  const std::vector<int64_t> of_3 = order_of(3), of_4 = order_of(4);
  set_global_seed(3);
  EXPECT_EQ(take(5), part(of_3, 0, 5));
  set_global_seed(4);
  EXPECT_EQ(take(8), part(of_3, 5, 8));
  EXPECT_THAT(log_, HasSubstr("in the order of seed 3, the checkpoint's, and not of 4,"));
  EXPECT_EQ(global_seed(), 4U);
  EXPECT_EQ(load_checkpoint(dir_.path()).extra.at("seed"), "3") << "once more";
  set_global_seed(4);
  EXPECT_EQ(take(12), part(of_3, 8, 12));
  // As before there were seeds in checkpoints.
  set_global_seed(4);
  set_position("10");
  set_seed_of_checkpoint(std::nullopt);
  EXPECT_EQ(take(14), part(of_4, 10, 12));
}

TEST_F(ResumeSeedTest, ADamagedSeedIsAnError) {
  take(1);
  for (const char* text : {"", "abc", "-3", "99999999999999999999"}) {
    set_seed_of_checkpoint(text);
    EXPECT_ERROR(take(2), "[restore] the seed");
  }
}

TEST_F(ResumeSeedTest, ASeedThatIsSetWhileTrainingCountsForWhatIsMadeThen) {
  const std::vector<int64_t> of_3 = order_of(3);
  set_global_seed(3);
  EXPECT_EQ(take(12, [] { set_global_seed(5); }), of_3);
  EXPECT_EQ(load_checkpoint(dir_.path()).extra.at("seed"), "3");
}

// What happens instead of a batch.
using Event = std::function<void()>;

// The numbers of its batches, of which one does not come.
class Numbered final : public InputSource {
 public:
  Numbered(std::vector<int64_t>& taken, int64_t number, Event event)
      : taken_(&taken), number_(number), event_(std::move(event)) {}
  void reset_state(int64_t position = 0) override { position_ = position; }
  std::optional<DataPoint> next() override {
    if (position_ == number_) {
      event_();
      return std::nullopt;
    }
    taken_->push_back(position_);
    return DataPoint{at::full({1}, position_++, at::kFloat)};
  }
  int64_t position() const override { return position_; }

 private:
  std::vector<int64_t>* taken_;
  int64_t number_;
  Event event_;
  int64_t position_ = 0;
};

void terminate() {
  std::raise(SIGTERM);
  throw Interrupted(SIGTERM);  // as sources do that wait
}

// Two towers add up what they get.
class TwoTowersTest : public ResumeStateTest {
 protected:
  // Trains an epoch of five steps, resuming what is there: the batches taken.
  std::vector<int64_t> train(int64_t number, Event event, const Event& in_step = {},
                             int64_t epochs = 1) {
    std::vector<int64_t> taken;
    SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
    const auto sum = [in_step](const at::Tensor& x) {
      if (in_step && x.sum().item<double>() == 3) in_step();
      at::NoGradGuard no_grad;
      get_variable("sum", {}, {.role = VariableRole::kModel}).add_(x.sum());
    };
    trainer.setup_graph(
        {{"x", {-1}}}, Numbered(taken, number, std::move(event)),
        [sum](const at::Tensor& x) {
          sum(x);
          return (get_variable("w", {}) * x).mean();
        },
        SGD({.lr = 0.1}));
    log_ = stdout_of([&] {
      AutoResumeTrainConfig config({.starting_epoch = 1, .max_epoch = epochs});
      try {
        trainer.train({.callbacks = {ModelSaver()},
                       .session = {.executor = ExecutorKind::kEager},
                       .session_init = std::move(config.session_init),
                       .steps_per_epoch = 5,
                       .starting_epoch = config.starting_epoch,
                       .max_epoch = config.max_epoch,
                       .starting_step = config.starting_step});
      } catch (const Interrupted&) {
      }
    });
    return taken;
  }

  bool has_checkpoint() const {
    const fs::directory_iterator files(dir_.path());
    return std::any_of(begin(files), end(files), [](const fs::directory_entry& file) {
      return file.path().filename().string().starts_with("model-");
    });
  }
  std::string position() const { return load_checkpoint(dir_.path()).extra.at(kPositionKey); }
};

TEST_F(TwoTowersTest, ASignalBetweenTheirBatchesSkipsNone) {
  EXPECT_THAT(train(5, terminate), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(position(), "4") << "the last batch was not used";
  EXPECT_EQ(load_checkpoint(dir_.path()).global_step, 2);
  EXPECT_THAT(train(-1, {}), ElementsAre(4, 5, 6, 7, 8, 9));
  EXPECT_EQ(load_checkpoint(dir_.path()).variables.at("sum").item<float>(), 0 + 2 + 4 + 6 + 8);
}

TEST_F(TwoTowersTest, TheEndOfTheDataBetweenTheirBatchesSkipsNone) {
  train(5, [] {});
  EXPECT_EQ(position(), "4") << "the last batch was not used";
  EXPECT_EQ(load_checkpoint(dir_.path()).global_step, 2);
}

TEST_F(TwoTowersTest, AStepThatASignalEndsInTheMiddleIsNotSaved) {
  train(-1, {}, [] {
    std::raise(SIGTERM);
    throw Interrupted(SIGTERM);  // as collectives do that wait
  });
  EXPECT_FALSE(has_checkpoint());
  EXPECT_THAT(log_, HasSubstr("at global_step = 1"));
}

TEST_F(ResumeStateTest, TheCheckpointIsReadOnce) {
  train(1, 1);
  std::vector<int64_t> taken;
  SeveralBatchesTrainer trainer(Recorded(taken), 1);
  stdout_of([&] {
    AutoResumeTrainConfig config{TrainConfig()};
    for (const auto& file : fs::directory_iterator(dir_.path())) fs::remove(file);
    trainer.train({.session_init = std::move(config.session_init),
                   .steps_per_epoch = 3,
                   .starting_epoch = config.starting_epoch,
                   .max_epoch = 2});
  });
  EXPECT_THAT(taken, ElementsAre(3, 4, 5));
  EXPECT_EQ(trainer.variables().at("sum").tensor.item<float>(), 0 + 1 + 2 + 3 + 4 + 5);
}

}  // namespace
}  // namespace tensorpack
