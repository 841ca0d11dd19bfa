// SPDX-License-Identifier: Apache-2.0
// Signals from a real parent to a real child that trains.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::Not;

class SignalProcessTest : public testing::Test {
 protected:
  // Starts the child, sends the signal in mid-training, and returns the exit status.
  int end_by(int signal, const std::string& saver = "none", const std::string& mode = "wait") {
    ChildProcess child({TENSORPACK_TRAIN_CHILD, mode, dir_.path().string(), saver});
    EXPECT_TRUE(child.read_until("running\n")) << child.output();
    // So that it does wait for data. (The thread sanitizer has lost signals that came just before.)
    if (mode == "block") std::this_thread::sleep_for(std::chrono::milliseconds(500));
    child.send(signal);
    const int status = child.wait();
    output_ = child.output();
    return status;
  }

  TempDir dir_;
  std::string output_;
};

TEST_F(SignalProcessTest, InterruptEndsWith130AfterAfterTrain) {
  EXPECT_EQ(end_by(SIGINT, "saver"), 130);
  EXPECT_THAT(output_, HasSubstr("Training was interrupted (SIGINT) at global_step = "));
  EXPECT_THAT(output_, HasSubstr("after_train at "));
  EXPECT_THROW(load_checkpoint(dir_.path()), std::exception) << "only SIGTERM saves";
}

TEST_F(SignalProcessTest, TerminateEndsWith143AfterAfterTrain) {
  EXPECT_EQ(end_by(SIGTERM), 143);
  EXPECT_THAT(output_, HasSubstr("Training was terminated (SIGTERM) at global_step = "));
  EXPECT_THAT(output_, HasSubstr("after_train at "));
}

TEST_F(SignalProcessTest, TerminateLeavesACheckpointOfTheLastStep) {
  EXPECT_EQ(end_by(SIGTERM, "saver"), 143);
  const Checkpoint checkpoint = load_checkpoint(dir_.path());
  EXPECT_THAT(output_, HasSubstr("after_train at " + std::to_string(checkpoint.global_step)));
}

TEST_F(SignalProcessTest, TerminateSavesThoughTheSaverIsScheduled) {
  EXPECT_EQ(end_by(SIGTERM, "periodic"), 143);
  EXPECT_GE(load_checkpoint(dir_.path()).global_step, 3);
}

TEST_F(SignalProcessTest, AClosedTerminalSavesToo) {
  EXPECT_EQ(end_by(SIGHUP, "saver"), 128 + SIGHUP);
  EXPECT_GE(load_checkpoint(dir_.path()).global_step, 3);
}

TEST_F(SignalProcessTest, ASchedulersOtherSignalsSaveAndEndToo) {
  for (const int signal : {SIGUSR2, SIGXCPU}) {
    EXPECT_EQ(end_by(signal, "saver"), 128 + signal) << output_;
    const Checkpoint checkpoint = load_checkpoint(dir_.path());
    EXPECT_THAT(output_, HasSubstr("after_train at " + std::to_string(checkpoint.global_step)));
  }
}

TEST_F(SignalProcessTest, ARequestToSaveIsCarriedOutAndTrainingGoesOn) {
  for (const char* saver : {"saver", "periodic"}) {
    ChildProcess child({TENSORPACK_TRAIN_CHILD, "wait", dir_.path().string(), saver});
    ASSERT_TRUE(child.read_until("running\n")) << child.output();
    child.send(SIGUSR1);
    ASSERT_TRUE(child.read_until("SIGUSR1 asks for a checkpoint at global_step = "));
    child.send(SIGINT);  // which does not save
    EXPECT_EQ(child.wait(), 130) << child.output();
    const Checkpoint checkpoint = load_checkpoint(dir_.path());
    EXPECT_THAT(child.output(), HasSubstr("SIGUSR1 asks for a checkpoint at global_step = " +
                                          std::to_string(checkpoint.global_step) + "."));
    EXPECT_EQ(checkpoint.extra.at("steps_done_in_epoch"), std::to_string(checkpoint.global_step));
  }
}

TEST_F(SignalProcessTest, AFileThatMayNotGrowIsAnErrorThatSaysSo) {
  ChildProcess child({"/bin/sh", "-c", "ulimit -f 16; exec \"$@\"", "sh", TENSORPACK_TRAIN_CHILD,
                      "resume", dir_.path().string(), "2", "1000000", "0"});
  EXPECT_EQ(child.wait(), 1);
  EXPECT_THAT(child.output(), HasSubstr("File too large"));
}

// A scheduler does not know what a program is at.
TEST_F(SignalProcessTest, ARequestToSaveBetweenTrainingsEndsNothing) {
  ChildProcess child({TENSORPACK_TRAIN_CHILD, "twice", dir_.path().string()});
  ASSERT_TRUE(child.read_until("between\n")) << child.output();
  child.send(SIGUSR1);
  write_file_atomically(dir_ / "go", "");
  EXPECT_EQ(child.wait(), 0) << child.output();
}

TEST_F(SignalProcessTest, AClosedPipeSavesToo) {
  ChildProcess child({TENSORPACK_TRAIN_CHILD, "wait", dir_.path().string(), "chatty"});
  EXPECT_TRUE(child.read_until("running\n")) << child.output();
  child.close_output();
  EXPECT_EQ(child.wait(), 128 + SIGPIPE);
  EXPECT_GE(load_checkpoint(dir_.path()).global_step, 1);
}

TEST_F(SignalProcessTest, DataThatDoesNotComeKeepsNobodyFromEnding) {
  for (const char* source : {"queue", "staging", "feed", "prefetch", "parallel_map"}) {
    EXPECT_EQ(end_by(SIGTERM, source, "block"), 143) << output_;
    EXPECT_THAT(output_, Not(HasSubstr("StagingInput still waits"))) << "it could have ended";
    const Checkpoint checkpoint = load_checkpoint(dir_.path());
    EXPECT_EQ(checkpoint.global_step, 3);
    EXPECT_EQ(checkpoint.extra.at("steps_done_in_epoch"), "3");
    EXPECT_EQ(checkpoint.extra.at("callback/InputSourceCallback"), "3");
  }
}

TEST_F(SignalProcessTest, AValidationThatDoesNotEndIsGivenUpAndItsEpochSaved) {
  for (const char* data : {"stall", "endless"}) {
    const TempDir dir;
    ChildProcess child({TENSORPACK_TRAIN_CHILD, "validate_data", dir.path().string(), data});
    ASSERT_TRUE(child.read_until("validating\n")) << child.output();
    child.send(SIGTERM);
    EXPECT_EQ(child.wait(), 143) << child.output();
    const Checkpoint checkpoint = load_checkpoint(dir.path());
    EXPECT_EQ(checkpoint.epoch_num, 1);
    EXPECT_FALSE(checkpoint.extra.contains("steps_done_in_epoch"));
  }
}

TEST_F(SignalProcessTest, AValidationInMidEpochIsGivenUpAndItsStepSaved) {
  ChildProcess child({TENSORPACK_TRAIN_CHILD, "validate_data", dir_.path().string(), "step"});
  ASSERT_TRUE(child.read_until("validating\n")) << child.output();
  child.send(SIGTERM);
  EXPECT_EQ(child.wait(), 143) << child.output();
  EXPECT_EQ(load_checkpoint(dir_.path()).extra.at("steps_done_in_epoch"), "3");
}

TEST_F(SignalProcessTest, WhyATrainingFailedIsReadOnceAndIsInTheLog) {
  const std::string reason = "[fail] it is broken.";
  const auto times_in = [&](const std::string& text) {
    int times = 0;
    for (size_t at = 0; (at = text.find(reason, at)) != std::string::npos; ++at) ++times;
    return times;
  };
  ChildProcess child({TENSORPACK_TRAIN_CHILD, "fail", dir_.path().string()});
  EXPECT_EQ(child.wait(), 1);
  EXPECT_EQ(times_in(child.output()), 1) << child.output();
  EXPECT_EQ(times_in(read_file(dir_ / "log.log")), 1);

  const std::string errors = dir_ / "errors";
  ChildProcess apart({"/bin/sh", "-c",
                      std::string(TENSORPACK_TRAIN_CHILD) + " fail " + (dir_ / "apart").string() +
                          " 2>" + errors});
  EXPECT_EQ(apart.wait(), 1);
  EXPECT_EQ(times_in(apart.output()), 1) << apart.output();
  EXPECT_EQ(times_in(read_file(errors)), 1);
}

TEST_F(SignalProcessTest, AnyObjectThatIsThrownIsAnErrorAndNoAbort) {
  ChildProcess child({TENSORPACK_TRAIN_CHILD, "throw", dir_.path().string()});
  EXPECT_EQ(child.wait(), 1);
  EXPECT_THAT(child.output(), HasSubstr("error: something was thrown that is no std::exception"));
}

}  // namespace
}  // namespace tensorpack
