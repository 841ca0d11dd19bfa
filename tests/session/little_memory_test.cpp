// SPDX-License-Identifier: Apache-2.0
// What happens to ops for which a device has no room.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/session/program_executor.h"
#include "tensorpack/utils/host_memory.h"
#include "tests/session/models.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Holds memory from its first run on, as captured work does, until it is to give it back.
class HoldingRunner final : public ProgramRunner {
 public:
  HoldingRunner(std::unique_ptr<ProgramRunner> runner, int& held)
      : runner_(std::move(runner)), held_(held) {}
  ~HoldingRunner() override { give_back_memory(); }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    if (!std::exchange(holds_, true)) ++held_;
    return runner_->run(inputs);
  }
  bool give_back_memory() override {
    const bool did = std::exchange(holds_, false);
    if (did) --held_;
    return did;
  }

 private:
  std::unique_ptr<ProgramRunner> runner_;
  int& held_;
  bool holds_ = false;
};

// Notes whether the programs it makes are to hold little memory.
class NotingLowering final : public Lowering {
 public:
  explicit NotingLowering(PassSwitches fusion) : Lowering(fusion) {}

  std::unique_ptr<ProgramRunner> make_runner(
      const Op& op, const Trace& trace, const std::vector<std::string>& fetches) const override {
    return std::make_unique<HoldingRunner>(Lowering::make_runner(op, trace, fetches), held);
  }

  void optimize(const Op& op, Trace& trace,
                const std::vector<std::string>& fetches) const override {
    Lowering::optimize(op, trace, fetches);
    saved_memory.push_back(saves_memory(op));
  }

  mutable std::vector<bool> saved_memory;
  mutable int held = 0;  // runners with memory
};

// An op that counts its runs in a variable, and does not fit when it is told so.
class LittleMemoryTest : public testing::Test {
 protected:
  // The calls of the function, beginning with the recording.
  enum Call { kRecording = 1, kVerifying = 2 };
  using DoesNotFit = std::function<bool(int call, bool saves_memory)>;

  void prepare(DoesNotFit does_not_fit, Recompute recompute = Recompute::kIfNeeded,
               c10::DeviceType device = c10::kCPU, ExecutorOptions options = {}) {
    does_not_fit_ = std::move(does_not_fit);
    op_ = define_on_x(graph_, [this](const at::Tensor& x) -> NamedTensors {
      const at::Tensor runs = get_scalar_variable("runs", 0);
      {
        const at::NoGradGuard no_grad;
        at::Tensor(runs).add_(1);
      }
      const int call = calls_++;
      if (call > 0 && does_not_fit_(call, lowering_->saves_memory(op_))) {
        TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory");
      }
      return {{"sum", x.sum()}};
    });
    auto lowering =
        std::make_unique<NotingLowering>(PassSwitches{.recompute = recompute, .device = device});
    lowering_ = lowering.get();
    executor_ = std::make_unique<ProgramExecutor>(graph_, options, std::move(lowering));
  }

  void expect_right_runs(int count, int64_t rows = 2) {
    for (int i = 0; i < count; ++i) {
      const at::Tensor batch = at::ones({rows, 3});
      EXPECT_EQ(executor_->run(op_, {batch}, {"sum"})[0].item<float>(), batch.numel());
      EXPECT_EQ(graph_.variables().at("runs").tensor.item<float>(), ++runs_);
    }
  }

  Graph graph_;
  Op op_;
  int calls_ = 0, runs_ = 0;
  DoesNotFit does_not_fit_;
  const NotingLowering* lowering_ = nullptr;
  std::unique_ptr<ProgramExecutor> executor_;
};

TEST_F(LittleMemoryTest, WhatFitsIsLeftAsItIs) {
  prepare([](int, bool) { return false; });
  const std::string log = stdout_of([&] { expect_right_runs(3); });
  EXPECT_THAT(log, Not(HasSubstr("no room")));
  EXPECT_THAT(lowering_->saved_memory, ElementsAre(false));
}

TEST_F(LittleMemoryTest, AStepThatCannotBeRecordedIsRecordedWithLess) {
  prepare([](int, bool saves_memory) { return !saves_memory; });
  const std::string log = stdout_of([&] { expect_right_runs(3); });
  EXPECT_THAT(log, HasSubstr("cpu has no room for op 'step' as it is."));
  EXPECT_THAT(log, Not(HasSubstr("was not verified")));
  EXPECT_THAT(lowering_->saved_memory, ElementsAre(true));
}

TEST_F(LittleMemoryTest, AStepThatCannotBeVerifiedIsMadeAgainWithLess) {
  prepare([](int call, bool saves_memory) { return call >= kVerifying && !saves_memory; });
  const std::string log = stdout_of([&] { expect_right_runs(3); });
  EXPECT_THAT(log, HasSubstr("cpu has no room for op 'step' as it is."));
  EXPECT_THAT(log, Not(HasSubstr("was not verified")));
  EXPECT_THAT(lowering_->saved_memory, ElementsAre(false, true));
}

TEST_F(LittleMemoryTest, HalfOfTheHostIsLeftToOthersWhereMemoryIsSaved) {
  prepare([](int, bool) { return false; }, Recompute::kAlways);
  const auto on_host = lowering_->results_on_host(op_);
  ASSERT_TRUE(on_host.has_value());
  EXPECT_EQ(static_cast<uint64_t>(on_host->most_on_host), host_memory() / 2);
}

TEST_F(LittleMemoryTest, WhatCannotBeVerifiedWithLessEitherTrainsUnverified) {
  prepare([](int call, bool) { return call == 2 || call == 4; });  // each time after recording
  const std::string log = stdout_of([&] { expect_right_runs(3); });
  EXPECT_THAT(log, HasSubstr("Op 'step' was not verified: cpu has no room for another batch."));
  EXPECT_THAT(lowering_->saved_memory, ElementsAre(false, true));
}

TEST_F(LittleMemoryTest, WhatDoesNotFitWithLessEitherIsAnErrorThatLeavesNoTrace) {
  prepare([](int, bool) { return true; });
  stdout_of([&] {
    EXPECT_THROW(executor_->run(op_, {at::ones({2, 3})}, {"sum"}), c10::OutOfMemoryError);
  });
  EXPECT_EQ(graph_.variables().at("runs").tensor.item<float>(), 0);
  EXPECT_EQ(calls_, 3);  // to define, to record, to record with less
}

TEST_F(LittleMemoryTest, ALaterVerificationThatDoesNotFitChangesNothing) {
  prepare([](int call, bool) { return call > kVerifying; });
  const std::string log = stdout_of([&] { expect_right_runs(5); });
  EXPECT_THAT(log, HasSubstr("Op 'step' was not verified"));
  EXPECT_THAT(log, Not(HasSubstr("as it is")));
  EXPECT_THAT(lowering_->saved_memory, ElementsAre(false));
}

// ---- what programs hold between their runs

TEST_F(LittleMemoryTest, ProgramsGiveBackWhatTheyHoldForARecording) {
  prepare([&](int, bool) { return lowering_->held > 0; }, Recompute::kIfNeeded, c10::kCPU,
          {.verify_again = false});
  const std::string log = stdout_of([&] {
    expect_right_runs(3);
    EXPECT_EQ(lowering_->held, 1);
    expect_right_runs(3, /*rows=*/4);
    expect_right_runs(1);
  });
  EXPECT_THAT(log, Not(HasSubstr("no room")));
  EXPECT_THAT(lowering_->saved_memory, ElementsAre(false, false));
  EXPECT_EQ(lowering_->held, 2);
}

TEST_F(LittleMemoryTest, ProgramsGiveBackWhatTheyHoldForAVerification) {
  prepare([&](int, bool) { return lowering_->held > 0; }, Recompute::kIfNeeded, c10::kCPU,
          {.verify_again = false});
  const std::string log = stdout_of([&] {
    expect_right_runs(3);
    executor_->run(op_, {at::ones({2, 3})}, {});  // another program of the same recording
    ++runs_;
    expect_right_runs(1);
  });
  EXPECT_THAT(log, Not(HasSubstr("no room")));
  EXPECT_THAT(lowering_->saved_memory, ElementsAre(false, false));
}

TEST_F(LittleMemoryTest, ProgramsGiveBackWhatTheyHoldForALaterVerification) {
  prepare([&](int, bool) { return lowering_->held > 0; });
  const std::string log = stdout_of([&] { expect_right_runs(3); });
  EXPECT_THAT(log, Not(HasSubstr("no room")));
  // To define, to record, to verify, and twice each to record again before runs 2 and 3; the first
  // time, it is tried without computing anything.
  EXPECT_EQ(calls_, 8);
}

// ---- what the user says

TEST_F(LittleMemoryTest, NeverMeansNever) {
  prepare([](int, bool saves_memory) { return !saves_memory; }, Recompute::kNever);
  EXPECT_THROW(executor_->run(op_, {at::ones({2, 3})}, {"sum"}), c10::OutOfMemoryError);
}

// Programs that are not for the device of the kernels.
TEST_F(LittleMemoryTest, OnTheCpuThereIsNothingToSave) {
  prepare([](int, bool saves_memory) { return !saves_memory; }, Recompute::kIfNeeded, c10::kCUDA);
  EXPECT_THROW(executor_->run(op_, {at::ones({2, 3})}, {"sum"}), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace tensorpack
