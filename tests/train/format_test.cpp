// SPDX-License-Identifier: Apache-2.0
// What a training reads of files that others wrote: earlier versions, and programs under another
// locale.
#include <gmock/gmock.h>

#include "tensorpack/callbacks/best_saver.h"
#include "tensorpack/callbacks/early_stopping.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/scheduled_hyper_param_setter.h"
#include "tensorpack/callbacks/stat_monitor_param_setter.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/monitors/csv_writer.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/train/auto_resume.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tests/support/capture.h"
#include "tests/support/decimal_comma.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Reports numbers that have no end in binary digits.
class ReportError final : public Callback {
 public:
  void trigger() override {
    trainer().monitors().put_scalar("error", 1.0 / (static_cast<double>(epoch_num()) + 0.1));
  }
};

class FormatTest : public testing::Test {
 protected:
  ~FormatTest() override { reset_logger_dir(); }

  std::string resume(const fs::path& dir, int64_t epochs, double* rate) {
    return stdout_of([&] {
      set_logger_dir(dir, LogDirAction::kKeep);
      set_global_seed(7);
      launch_train_with_config(
          AutoResumeTrainConfig(
              {.model = linear_model(),
               .data = FeedInput(linear_data()),  // a queue would report how full it is
               .callbacks = {ReportError(), EarlyStopping({.stat_name = "error", .patience = 5}),
                             StatMonitorParamSetter(
                                 ObjAttrParam("rate", *rate),
                                 {.stat_name = "error",
                                  .value_func = [](double value) { return value / 3; },
                                  .threshold = 0.25,
                                  .last_k = 2}),
                             MinSaver("error"), ModelSaver()},
               .extra_callbacks = OwnedList<Callback>(),
               .monitors = OwnedList<MonitorBase>(JSONWriter(), CSVWriter()),
               .max_epoch = epochs}),
          SimpleTrainer());
    });
  }

  TempDir dir_;
};

TEST_F(FormatTest, ATrainingGoesOnFromACheckpointOfFormat2) {
  fs::copy(fs::path(TENSORPACK_SOURCE_DIR) / "tests/checkpoint/data/format_2.safetensors",
           dir_ / "model-8.safetensors");
  double rate = 1;
  const std::string log = resume(dir_.path(), 3, &rate);
  EXPECT_THAT(log, AllOf(HasSubstr("with epoch 3, step 0 of it"),
                         HasSubstr("model-8.safetensors' does not say which program saved it"),
                         HasSubstr("the best 'error' so far, 0.75, is forgotten"),
                         Not(HasSubstr("The program has changed"))));
  const Checkpoint newest = load_checkpoint(dir_.path());
  EXPECT_EQ(newest.global_step, 12);
  EXPECT_THAT(newest.extra.at("callback/EarlyStopping"), HasSubstr(exact_text(1 / 3.1)));
  EXPECT_FALSE(newest.fingerprint.empty());
}

// Begun under one locale and resumed under the other.
TEST_F(FormatTest, ADecimalCommaChangesNothing) {
  const auto begin = [&](const fs::path& dir, double* rate) { resume(dir, 2, rate); };
  const auto end = [&](const fs::path& dir, double* rate) { resume(dir, 4, rate); };
  double rates[3] = {1, 1, 1};
  begin(dir_ / "point", &rates[0]);
  end(dir_ / "point", &rates[0]);
  begin(dir_ / "then-comma", &rates[1]);
  {
    TP_UNDER_DECIMAL_COMMA_OR_SKIP(comma);
    end(dir_ / "then-comma", &rates[1]);
    begin(dir_ / "then-point", &rates[2]);
  }
  end(dir_ / "then-point", &rates[2]);
  EXPECT_LT(rates[0], 1) << "the setter acts on what it has seen before and after";
  for (const char* other : {"then-comma", "then-point"}) {
    for (const char* file : {"stats.json", "stats.csv"}) {
      EXPECT_EQ(read_file(dir_ / other / file), read_file(dir_ / "point" / file)) << other;
    }
    for (const char* file : {"model-16.safetensors", "min-error.safetensors"}) {
      EXPECT_EQ(load_checkpoint(dir_ / other / file).extra,
                load_checkpoint(dir_ / "point" / file).extra)
          << other;
    }
  }
  EXPECT_EQ(rates[1], rates[0]);
  EXPECT_EQ(rates[2], rates[0]);
}

}  // namespace
}  // namespace tensorpack
