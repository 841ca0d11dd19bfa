// SPDX-License-Identifier: Apache-2.0
// What holds for every monitor.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "tensorpack/monitors/csv_writer.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/monitors/report.h"
#include "tensorpack/monitors/scalar_printer.h"
#include "tensorpack/monitors/send_monitor_data.h"
#include "tensorpack/monitors/tf_event_writer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/declared_classes.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

struct Case {
  std::string name;
  std::function<std::unique_ptr<MonitorBase>()> make;
};

std::vector<Case> all_cases() {
  return {
      {"JSONWriter", [] { return std::make_unique<JSONWriter>(); }},
      {"CSVWriter", [] { return std::make_unique<CSVWriter>(); }},
      {"TFEventWriter", [] { return std::make_unique<TFEventWriter>(); }},
      {"Report", [] { return std::make_unique<Report>(); }},
      {"ScalarPrinter", [] { return std::make_unique<ScalarPrinter>(); }},
      {"SendMonitorData",
       [] {
         return std::make_unique<SendMonitorData>("true {number}",
                                                  std::vector<std::string>{"number"});
       }},
      {"MonitorBase", [] { return std::make_unique<MonitorBase>(); }},
  };
}

// Reports something of every kind: before training, in every step and after every epoch.
class ReportAll final : public Callback {
 public:
  void before_train() override { report(); }
  void trigger_step() override { report(); }
  void trigger_epoch() override { report(); }

 private:
  void report() const {
    Monitors& monitors = trainer().monitors();
    monitors.put_scalar("number", static_cast<double>(global_step()));
    monitors.put_scalar("nan", std::numeric_limits<double>::quiet_NaN());
    monitors.put_scalar("odd \"name\",\n\xff", -std::numeric_limits<double>::infinity());
    monitors.put_image("image", at::rand({2, 4, 5, 3}) * 255);
    monitors.put_histogram("histogram", at::rand({9}));
    monitors.put_histogram("empty", at::empty({0}));
    monitors.put_text("text", "words");
    monitors.put_hyper_params({{"lr", "0.1"}, {"name", "x"}});
    for (MonitorBase& monitor : monitors.all()) monitor.flush();
  }
};

class MonitorContractTest : public testing::TestWithParam<Case> {
 protected:
  void use_dir() {
    stdout_of([&] { set_logger_dir(dir_.path(), LogDirAction::kKeep); });
  }
  ~MonitorContractTest() override { reset_logger_dir(); }

  std::string train(LoopState loop, OwnedList<Callback> callbacks = ReportAll()) {
    FakeTrainer trainer(loop);
    trainer.graph().global_step().tensor.fill_(loop.global_step);
    return stdout_of([&] { trainer.train(std::move(callbacks), GetParam().make()); });
  }

  TempDir dir_;
};

TEST_P(MonitorContractTest, TakesEverythingForTwoEpochsAndGoesOn) {
  use_dir();
  train({.steps_per_epoch = 2, .max_epoch = 2});
  train({.global_step = 4, .steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 4});
  train({.global_step = 4, .steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 4});  // again
  train({.steps_per_epoch = 2, .max_epoch = 1});                                         // anew
}

TEST_P(MonitorContractTest, WorksWithoutALogDirectory) {
  reset_logger_dir();
  train({.steps_per_epoch = 2, .max_epoch = 2});
}

TEST_P(MonitorContractTest, RunsWithoutSteps) {
  use_dir();
  train({.steps_per_epoch = 0, .max_epoch = 2});
  train({.steps_per_epoch = 1, .max_epoch = 0});
}

TEST_P(MonitorContractTest, SurvivesEveryWayOfEnding) {
  use_dir();
  const auto fail = [] { throw std::runtime_error("on purpose"); };
  const auto stop = [] { throw StopTraining("on purpose"); };
  for (const char* method : {"before_train", "after_run", "trigger_step", "trigger_epoch"}) {
    EXPECT_THROW(
        train({.steps_per_epoch = 2, .max_epoch = 2}, {ReportAll(), ActAt(method, 0, fail)}),
        std::runtime_error)
        << method;
    train({.steps_per_epoch = 2, .max_epoch = 2}, {ReportAll(), ActAt(method, 0, stop)});
  }
}

// A trainer drops them there; who drives them in another way gets the same.
TEST_P(MonitorContractTest, RunsInProcessesThatAreNotTheChief) {
  use_dir();
  FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = 2});
  trainer.set_chief(false);
  stdout_of([&] { trainer.train(ReportAll(), GetParam().make()); });
  EXPECT_EQ(trainer.global_step(), 4);
}

const std::filesystem::path kSources = TENSORPACK_SOURCE_DIR;

TEST(AllMonitorsTest, KeepTheContract) {
  std::set<std::string> expected =
      classes_derived_from("MonitorBase", kSources / "tensorpack/monitors");
  expected.insert("MonitorBase");
  std::set<std::string> tested;
  for (const Case& one : all_cases()) tested.insert(one.name);
  EXPECT_EQ(tested, expected);
}

TEST(AllMonitorsTest, AreInTheTutorial) {
  const std::string text = read_file(kSources / "docs/tutorial/summary.md") +
                           read_file(kSources / "docs/tutorial/report.md");
  for (const Case& one : all_cases()) {
    EXPECT_THAT(text, testing::HasSubstr(one.name)) << "not in summary.md or report.md";
  }
}

struct Wrong {
  std::string name;
  std::function<void()> act;
  std::string message;
};

TEST(AllMonitorsTest, SayWhatIsWrongWithTheirArguments) {
  const std::vector<Wrong> all = {
      {"TFEventWriter", [] { TFEventWriter({.flush_seconds = -1}); },
       "[TFEventWriter] flush_seconds must not be negative, got -1."},
      {"Report", [] { Report({.max_share = 0}); },
       "[Report] the period, 30, must not be negative, and max_share, 0, must be positive."},
      {"ScalarPrinter", [] { ScalarPrinter({.whitelist = {"("}}); }, "[ScalarPrinter]"},
      {"SendMonitorData", [] { SendMonitorData("", {"cost"}); },
       "[SendMonitorData] the command is '' for 1 name."},
      {"SendMonitorData", [] { SendMonitorData("echo {cots}", {"cost"}); },
       "'{cots}' in the command is not one of the names. Did you mean 'cost'"},
  };
  for (const Wrong& one : all) {
    EXPECT_THAT(one.act, testing::ThrowsMessage<Error>(testing::HasSubstr(one.message)))
        << one.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MonitorContractTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tensorpack
