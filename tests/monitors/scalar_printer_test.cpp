// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/scalar_printer.h"

#include <gmock/gmock.h>

#include <regex>

#include "tensorpack/utils/error.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// The texts of log lines, without time and place.
std::string messages(const std::string& log) {
  return std::regex_replace(log, std::regex("(\x1b\\[[0-9;]*m)|(\\[[^\\]]*\\] )"), "");
}

// Two steps of one epoch, then its end.
std::string print_one_epoch(ScalarPrinterOptions options) {
  return messages(stdout_of([&] {
    ScalarPrinter printer(std::move(options));
    LoopState loop{.epoch_num = 1, .steps_per_epoch = 2};
    printer.before_train(loop);
    for (loop.local_step = 0; loop.local_step < 2; ++loop.local_step) {
      printer.process_scalar("cost", static_cast<double>(loop.local_step) + 0.123456789, loop);
      printer.trigger_step(loop);
    }
    loop.local_step = 1;
    printer.process_scalar("accuracy", 0.5, loop);
    printer.process_scalar("big/value", 123456789, loop);
    printer.trigger_epoch(loop);
  }));
}

TEST(ScalarPrinterTest, PrintsTheNewestValuesAtTheEndOfAnEpochSorted) {
  EXPECT_EQ(print_one_epoch({}),
            "Scalars:\n"
            "  accuracy:  0.5\n"
            "  big/value: 1.2346e+08\n"
            "  cost:      1.1235\n");
}

TEST(ScalarPrinterTest, JoinsTheLastStepWithItsEpoch) {
  EXPECT_EQ(print_one_epoch({.enable_step = true, .whitelist = {"cost"}}),
            "cost: 0.12346\nScalars:\n  cost: 1.1235\n");
}

TEST(ScalarPrinterTest, TheTableShowsTheChangeSinceTheLastOne) {
  ScalarPrinter printer;
  const auto print = [&](double cost) {
    return messages(stdout_of([&] {
      printer.process_scalar("cost", cost, {});
      printer.process_scalar("same", 2, {});
      printer.trigger_epoch({});
    }));
  };
  print(1.5);
  EXPECT_EQ(print(1.25),
            "Scalars:\n"
            "  cost: 1.25       -0.25\n"
            "  same: 2\n");
}

TEST(ScalarPrinterTest, PrintsTheLastStepWhenEpochsAreOff) {
  EXPECT_EQ(print_one_epoch({.enable_step = true, .enable_epoch = false}),
            "cost: 0.12346\ncost: 1.1235\n");
}

TEST(ScalarPrinterTest, ListsAreSearchedForInNames) {
  EXPECT_EQ(print_one_epoch({.whitelist = {"^c", "a"}, .blacklist = {"/val"}}),
            "Scalars:\n  accuracy: 0.5\n  cost:     1.1235\n");
}

TEST(ScalarPrinterTest, PrintsWhatWasReportedBeforeTraining) {
  ScalarPrinter printer;
  EXPECT_EQ(messages(stdout_of([&] {
              printer.process_scalar("error", 1, {});
              printer.before_train({});
            })),
            "Scalars:\n  error: 1\n");
}

TEST(ScalarPrinterTest, RejectsABrokenRegularExpression) {
  EXPECT_THAT([] { ScalarPrinter({.whitelist = {"("}}); },
              ThrowsMessage<Error>(HasSubstr("'(' is not a regular expression")));
}

}  // namespace
}  // namespace tensorpack
