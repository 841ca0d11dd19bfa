// SPDX-License-Identifier: Apache-2.0
// Getting at a training that runs: InjectShell, SessionRunTimeout, StartProcOrThread.
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tensorpack/callbacks/inject_shell.h"
#include "tensorpack/callbacks/session_run_timeout.h"
#include "tensorpack/callbacks/start_proc_or_thread.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/session/run_activity.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/decimal_comma.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using namespace std::chrono_literals;  // NOLINT
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

class InjectShellTest : public testing::Test {
 protected:
  InjectShellTest() {
    stdout_of([&] { set_logger_dir(dir_.path(), LogDirAction::kKeep); });
  }
  ~InjectShellTest() override { reset_logger_dir(); }

  // Writes the commands within the first epoch.
  std::string train_with(const std::string& commands) {
    return stdout_of([&] {
      trainer_.train(
          {ActAt("trigger_step", 1, [&] { std::ofstream(dir_ / "INJECT_SHELL.tmp") << commands; }),
           InjectShell()});
    });
  }

  TempDir dir_;
  FakeTrainer trainer_{{.steps_per_epoch = 2, .max_epoch = 3}};
};

TEST_F(InjectShellTest, PrintsAndSetsVariables) {
  const std::string text = train_with("print w\nset scratch 0.25\n");
  EXPECT_THAT(text, HasSubstr("w:\n2\n"));
  EXPECT_THAT(text, HasSubstr("scratch changes from 0 to 0.25."));
  EXPECT_EQ(trainer_.variables().at("scratch").tensor.item<double>(), 0.25);
  EXPECT_EQ(trainer_.global_step(), 6);
}

TEST_F(InjectShellTest, NumbersHaveAPointUnderADecimalComma) {
  TP_UNDER_DECIMAL_COMMA_OR_SKIP(comma);
  train_with("set scratch 0.25\n");
  EXPECT_EQ(trainer_.variables().at("scratch").tensor.item<double>(), 0.25);
}

TEST_F(InjectShellTest, Stops) {
  train_with("stop\nset scratch 1\n");
  EXPECT_EQ(trainer_.global_step(), 2);
}

TEST_F(InjectShellTest, Saves) {
  train_with("save\n");
  EXPECT_EQ(load_checkpoint(dir_ / "model-2").variables.at("w").item<float>(), 2);
}

TEST_F(InjectShellTest, WhatItDoesNotUnderstandHarmsNothing) {
  const std::string text = train_with("print nothing\nset w fast\ndance\n\ngo\nset scratch 1\n");
  EXPECT_THAT(text, HasSubstr("'nothing'"));
  EXPECT_THAT(text, HasSubstr("'fast' is no number"));
  EXPECT_THAT(text, HasSubstr("'dance' is no command"));
  EXPECT_EQ(trainer_.variables().at("scratch").tensor.item<double>(), 0) << "after go";
  EXPECT_EQ(trainer_.global_step(), 6);
}

TEST_F(InjectShellTest, TheSignalAsksForTheTerminal) {
  const std::string text = stdout_of([&] {
    trainer_.train({ActAt("trigger_step", 1, [] { std::raise(SIGUSR1); }), InjectShell()});
  });
  if (isatty(STDIN_FILENO) == 0) {
    EXPECT_THAT(text, HasSubstr("there is no terminal. Write commands"));
  }
  EXPECT_EQ(trainer_.global_step(), 6);
}

// Whether it is in what stdout_of() has got so far.
bool was_printed(const std::string& text) {
  return read_file("/proc/self/fd/1").find(text) != std::string::npos;
}

TEST(SessionRunTimeoutTest, AStepThatHangsIsReportedWithWhatItWaitsFor) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
  const std::string text = stdout_of([&] {
    trainer.setup({SessionRunTimeout(20ms)});
    trainer.callbacks().before_train();
    const Op slow =
        Op::group("slow", {Op::host("sleep", [&] {
                    const RunActivity activity(RunPhase::kInput, trainer.graph().ops()[0]);
                    while (!was_printed("SessionRunTimeout")) std::this_thread::yield();
                  })});
    trainer.hooked_sess().run(slow);
    trainer.callbacks().after_train();
  });
  EXPECT_THAT(text, HasSubstr("[SessionRunTimeout] step 1 has taken"));
  EXPECT_THAT(text, HasSubstr("It waits for the data of 'train_op'."));
}

TEST(SessionRunTimeoutTest, StepsInTimeAreNotReported) {
  FakeTrainer trainer({.steps_per_epoch = 5, .max_epoch = 1});
  EXPECT_THAT(stdout_of([&] { trainer.train({SessionRunTimeout(100s)}); }),
              Not(HasSubstr("SessionRunTimeout")));
  EXPECT_THROW(SessionRunTimeout(0s), Error);
}

// The time is that of a step: the next one may still run when that of the last would be over.
TEST(SessionRunTimeoutTest, EveryStepHasTheWholeTime) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
  const std::string text = stdout_of([&] {
    trainer.setup({SessionRunTimeout(1000ms)});
    trainer.callbacks().before_train();
    const Op step = Op::group("step", {Op::host("sleep", [] {
                                const auto end = std::chrono::steady_clock::now() + 550ms;
                                std::this_thread::sleep_until(end);
                              })});
    for (int i = 0; i < 2; ++i) trainer.hooked_sess().run(step);
    trainer.callbacks().after_train();
  });
  EXPECT_THAT(text, Not(HasSubstr("SessionRunTimeout")));
}

// Tensorpack takes milliseconds.
TEST(SessionRunTimeoutTest, ABareNumberDoesNotSayItsUnit) {
  static_assert(!std::is_constructible_v<SessionRunTimeout, int>);
  static_assert(!std::is_constructible_v<SessionRunTimeout, double>);
  static_assert(std::is_constructible_v<SessionRunTimeout, std::chrono::milliseconds>);
}

TEST(StartProcOrThreadTest, AThreadRunsDuringTraining) {
  std::atomic<bool> ran = false;
  std::atomic<bool> stopped = false;
  FakeTrainer trainer;
  stdout_of([&] {
    trainer.train({StartProcOrThread("worker", [&](const std::stop_token& stop) {
      ran = true;
      while (!stop.stop_requested()) std::this_thread::yield();
      stopped = true;
    })});
  });
  EXPECT_TRUE(ran);
  EXPECT_TRUE(stopped);
}

TEST(StartProcOrThreadTest, WhatAThreadThrowsEndsTheTraining) {
  FakeTrainer trainer;
  EXPECT_THAT(
      [&] {
        stdout_of([&] {
          trainer.train({StartProcOrThread(
              "worker", [](const std::stop_token&) { throw Error("no simulator"); })});
        });
      },
      ThrowsMessage<Error>(HasSubstr("no simulator")));
}

TEST(StartProcOrThreadTest, AProcessIsEndedWithTheTraining) {
  const TempDir dir;
  const auto file = dir / "pid";
  FakeTrainer trainer;
  stdout_of([&] {
    trainer.train({StartProcOrThread("echo $$ > " + file.string() + "; sleep 100"),
                   ActAt("trigger_step", 0, [&] {
                     while (!std::filesystem::exists(file) || read_file(file).empty()) {
                       std::this_thread::yield();
                     }
                   })});
  });
  EXPECT_NE(kill(std::stoi(read_file(file)), 0), 0) << "it is still there";
}

TEST(StartProcOrThreadTest, WhatIsToGoOnOutlivesTheTraining) {
  const TempDir dir;
  const auto file = dir / "pid";
  std::atomic<bool> stopped = false;
  {
    FakeTrainer trainer;
    stdout_of([&] {
      trainer.train({StartProcOrThread("worker",
                                       [&](const std::stop_token& stop) {
                                         while (!stop.stop_requested()) std::this_thread::yield();
                                         stopped = true;
                                       },
                                       {.stop_at_last = false}),
                     StartProcOrThread("echo $$ > " + file.string() + "; exec sleep 100",
                                       {.stop_at_last = false}),
                     ActAt("trigger_step", 0, [&] {
                       while (!std::filesystem::exists(file) || read_file(file).empty()) {
                         std::this_thread::yield();
                       }
                     })});
    });
    EXPECT_FALSE(stopped);
  }
  EXPECT_TRUE(stopped) << "its owner is gone";
  const int process = std::stoi(read_file(file));
  EXPECT_EQ(kill(process, 0), 0) << "it is no more there";
  kill(process, SIGKILL);
  waitpid(process, nullptr, 0);
}

TEST(StartProcOrThreadTest, AProcessThatFailsIsAnErrorInTheLog) {
  FakeTrainer trainer;
  const std::string text = stdout_of([&] {
    trainer.train({ActAt("trigger_step", 0,
                         [] {
                           siginfo_t ended;
                           EXPECT_EQ(waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT), 0);
                         }),
                   StartProcOrThread("exit 3")});
  });
  EXPECT_THAT(text, HasSubstr("'exit 3' ended with status 3"));
  EXPECT_THROW(StartProcOrThread(""), Error);
}

}  // namespace
}  // namespace tensorpack
