// SPDX-License-Identifier: Apache-2.0
// Signals in a process that trains more than once at a time.
#include "tensorpack/utils/signals.h"

#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/train/step_trainer.h"

namespace tensorpack {
namespace {

// The handler that is installed for a signal.
auto handler_of(int signal) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  return action.sa_handler;
}

// Trains; the signal that ended it, or 0.
int train(StepTrainer& trainer, int64_t steps, OwnedList<Callback> callbacks = {}) {
  try {
    trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = steps, .max_epoch = 1});
  } catch (const Interrupted& interrupted) {
    return interrupted.signal();
  }
  return 0;
}

TEST(SignalsTest, ASignalReachesTwoTrainingsOnTwoThreads) {
  const auto before = handler_of(SIGTERM);
  std::atomic<int> running = 0;
  std::array<int, 2> ended_by = {};
  stdout_of([&] {
    std::vector<std::thread> threads;
    for (int& result : ended_by) {
      threads.emplace_back([&running, &result] {
        StepTrainer trainer([&running](StepTrainer& self) {
          if (self.local_step() == 0) ++running;
        });
        result = train(trainer, 1'000'000'000'000);
      });
    }
    while (running < 2) std::this_thread::yield();
    std::raise(SIGTERM);
    for (std::thread& thread : threads) thread.join();
  });
  EXPECT_THAT(ended_by, testing::Each(SIGTERM));
  EXPECT_EQ(handler_of(SIGTERM), before) << "the old handler did not come back";
}

TEST(SignalsTest, ATrainingInACallbackOfAnotherEndsAlone) {
  StepTrainer outer = hooked_runs(1);
  StepTrainer inner = hooked_runs(1);
  int inner_ended_by = -1;
  int outer_ended_by = -1;
  stdout_of([&] {
    outer_ended_by =
        train(outer, 4, {ActAt("trigger_step", 1, [&] { inner_ended_by = train(inner, 3); })});
  });
  EXPECT_EQ(inner_ended_by, 0);
  EXPECT_EQ(outer_ended_by, 0);
  EXPECT_EQ(inner.global_step(), 3);
  EXPECT_EQ(outer.global_step(), 4);
}

TEST(SignalsTest, ASignalEndsTheTrainingAroundACallbackToo) {
  StepTrainer outer = hooked_runs(1);
  StepTrainer inner([](StepTrainer& self) {
    self.hooked_sess().run(Op::nothing());
    if (self.local_step() == 1) std::raise(SIGINT);
  });
  int inner_ended_by = -1;
  int outer_ended_by = -1;
  stdout_of([&] {
    outer_ended_by =
        train(outer, 4, {ActAt("trigger_step", 1, [&] { inner_ended_by = train(inner, 3); })});
  });
  EXPECT_EQ(inner_ended_by, SIGINT);
  EXPECT_EQ(outer_ended_by, SIGINT);
  EXPECT_EQ(inner.global_step(), 2);
  EXPECT_EQ(outer.global_step(), 2) << "it was in its second step";
}

TEST(SignalsTest, ASignalOfAnEarlierTrainingIsForgotten) {
  for (const int expected : {SIGINT, 0}) {
    StepTrainer trainer([expected](StepTrainer&) {
      if (expected != 0) std::raise(expected);
    });
    stdout_of([&] { EXPECT_EQ(train(trainer, 2), expected); });
  }
}

TEST(SignalsTest, ARequestToSaveThatNobodyFollowsIsAWarning) {
  StepTrainer trainer([](StepTrainer&) { std::raise(SIGUSR1); });
  EXPECT_THAT(stdout_of([&] { train(trainer, 1); }), testing::HasSubstr("Add a ModelSaver()."));
}

TEST(SignalsTest, ARequestToSaveReachesEveryWatchOnce) {
  SignalWatch one, other;
  EXPECT_FALSE(one.take_request_to_save());
  std::raise(SIGUSR1);
  EXPECT_TRUE(one.take_request_to_save());
  EXPECT_FALSE(one.take_request_to_save());
  EXPECT_TRUE(other.take_request_to_save());
  std::raise(SIGUSR1);
  EXPECT_TRUE(one.take_request_to_save());
  EXPECT_EQ(one.received(), 0);
}

TEST(SignalsTest, SignalsThatTheProgramHandlesRemainItsOwn) {
  static int handled = 0;
  const auto count = [](int) { ++handled; };
  for (const int signal : {SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ}) {
    const auto old = std::signal(signal, count);
    SignalWatch watch;
    std::raise(signal);
    EXPECT_EQ(watch.received(), 0) << signal;
    EXPECT_FALSE(watch.take_request_to_save());
    std::signal(signal, old);
  }
  EXPECT_EQ(handled, 4);
}

TEST(SignalsTest, ATooLargeFileIsNoSignalWhileItTrains) {
  const auto old = std::signal(SIGXFSZ, SIG_DFL);
  {
    const SignalWatch watch;
    EXPECT_EQ(handler_of(SIGXFSZ), SIG_IGN) << "so that the write fails";
  }
  EXPECT_EQ(handler_of(SIGXFSZ), SIG_DFL);
  std::signal(SIGXFSZ, old);
}

// Whoever sends SIGTERM wants a checkpoint; an impatient Ctrl-C must not undo that.
TEST(SignalsTest, TerminateWinsOverInterruptInAnyOrder) {
  for (const auto& order : {std::pair(SIGTERM, SIGINT), std::pair(SIGINT, SIGTERM)}) {
    const SignalWatch watch;
    std::raise(order.first);
    EXPECT_EQ(watch.received(), order.first);
    std::raise(order.second);
    EXPECT_EQ(watch.received(), SIGTERM);
  }
}

TEST(SignalsTest, WhatWasIgnoredStaysIgnored) {
  const auto old = std::signal(SIGHUP, SIG_IGN);
  {
    const SignalWatch watch;
    std::raise(SIGHUP);
    EXPECT_EQ(watch.received(), 0) << "as under nohup";
  }
  std::signal(SIGHUP, SIG_DFL);
  {
    const SignalWatch watch;
    std::raise(SIGHUP);
    EXPECT_EQ(watch.received(), SIGHUP);
  }
  std::signal(SIGHUP, old);
}

}  // namespace
}  // namespace tensorpack
