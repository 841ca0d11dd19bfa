// SPDX-License-Identifier: Apache-2.0
// What callbacks keep over a restart.
#include <gmock/gmock.h>

#include "tensorpack/callbacks/best_saver.h"
#include "tensorpack/callbacks/early_stopping.h"
#include "tensorpack/callbacks/human_hyper_param_setter.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/stat_monitor_param_setter.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"
#include "tests/support/decimal_comma.h"
#include "tests/support/fake_trainer.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::UnorderedElementsAre;

// Counts epochs over restarts.
class CountEpochs final : public Callback {
 public:
  explicit CountEpochs(int64_t count = 0) : count_(count) {}
  void trigger_epoch() override { ++count_; }
  std::string save_state() const override { return std::to_string(count_); }
  void load_state(const std::string& state) override {
    if (state == "abc") throw std::invalid_argument("'abc' is no number.");
    count_ = std::stoll(state);
  }
  int64_t count() const { return count_; }

 private:
  int64_t count_;
};

class Stateless final : public Callback {};

TEST(CallbackStateTest, StatesAreKeptByNameAndNumber) {
  const Callbacks callbacks({CountEpochs(1), Stateless(), CountEpochs(2),
                             PeriodicTrigger(CountEpochs(3), {.every_k_epochs = 1})});
  EXPECT_THAT(
      callbacks.save_states(),
      UnorderedElementsAre(Pair("callback/CountEpochs", "1"), Pair("callback/CountEpochs#2", "2"),
                           Pair("callback/PeriodicTrigger(CountEpochs)", "3")));
}

TEST(CallbackStateTest, EachCallbackGetsItsOwnStateBack) {
  Callbacks callbacks;
  const auto& first = callbacks.all().add(CountEpochs());
  const auto& second = callbacks.all().add(CountEpochs());
  auto& inner = callbacks.all().add(PeriodicTrigger(CountEpochs(), {.every_k_epochs = 1}));
  const std::string log = stdout_of([&] {
    callbacks.load_states({{"callback/CountEpochs", "7"},
                           {"callback/CountEpochs#2", "8"},
                           {"callback/PeriodicTrigger(CountEpochs)", "9"},
                           {"generator/cpu", "00"}});
  });
  EXPECT_EQ(first.count(), 7);
  EXPECT_EQ(second.count(), 8);
  EXPECT_EQ(inner.save_state(), "9");
  EXPECT_THAT(log, IsEmpty());
}

TEST(CallbackStateTest, UnknownAndMissingStatesAreTold) {
  Callbacks callbacks({CountEpochs(), Stateless()});
  const std::string log = stdout_of([&] { callbacks.load_states({{"callback/Old", "1"}}); });
  EXPECT_THAT(log, HasSubstr("has no state of these callbacks: CountEpochs."));
  EXPECT_THAT(log, HasSubstr("has states of callbacks that are not there now: Old."));
  EXPECT_THAT(log, Not(HasSubstr("Stateless")));
}

// Other processes do not have the callbacks of the chief.
TEST(CallbackStateTest, StatesOfTheChiefAloneAreNotMissed) {
  Callbacks callbacks(OwnedList<Callback>{CountEpochs()});
  const std::string log = stdout_of([&] {
    callbacks.load_states({{"callback/CountEpochs", "7"}, {"callback/OfTheChief", "1"}},
                          /*has_all=*/false);
  });
  EXPECT_THAT(log, IsEmpty());
}

TEST(CallbackStateTest, ADamagedStateNamesTheCallback) {
  Callbacks callbacks(OwnedList<Callback>{CountEpochs()});
  EXPECT_ERROR(callbacks.load_states({{"callback/CountEpochs", "abc"}}),
               "[CountEpochs] its state in the checkpoint is damaged: 'abc' is no number.");
}

// The saver comes first in the list, and still saves what the others do in the same epoch.
TEST(CallbackStateTest, ACheckpointHasWhatAllCallbacksDid) {
  const TempDir dir;
  FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = 3});
  stdout_of([&] {
    trainer.train({ModelSaver({.checkpoint_dir = dir.path()}), CountEpochs(), CountEpochs(10)});
  });
  const auto extra = load_checkpoint(dir.path()).extra;
  EXPECT_EQ(extra.at("callback/CountEpochs"), "3");
  EXPECT_EQ(extra.at("callback/CountEpochs#2"), "13");
}

// What callbacks make of states that were written under another locale.
void expect_numbers_kept() {
  FakeTrainer trainer;
  const auto kept = [&](Callback&& callback, const std::string& state) {
    callback.attach(trainer);
    callback.load_state(state);
    EXPECT_EQ(callback.save_state(), state);
  };
  kept(EarlyStopping({.stat_name = "error", .patience = 5}), R"({"best":"0x1.65p-2","worse":1})");
  double rate = 0;
  const StatMonitorParamSetterOptions options{
      .stat_name = "error", .value_func = [](double value) { return value / 2; }, .last_k = 3};
  kept(StatMonitorParamSetter(ObjAttrParam("rate", rate), options),
       R"({"seen":["0x1.8p+1","0x1.999999999999ap-4"],"value":"0x1.4p+0"})");
  EXPECT_EQ(rate, 1.25);
  kept(HumanHyperParamSetter(ObjAttrParam("rate", rate)), "0x1.999999999999ap-4");
  EXPECT_EQ(rate, 0.1);
  kept(MinSaver("error"),
       R"({"epoch":2,"file":"min-error.safetensors","step":4,"value":"0x1.65p-2"})");
}

TEST(CallbackStateTest, NumbersAreKeptExactly) { expect_numbers_kept(); }

TEST(CallbackStateTest, NumbersAreKeptUnderADecimalComma) {
  TP_UNDER_DECIMAL_COMMA_OR_SKIP(comma);
  expect_numbers_kept();
}

}  // namespace
}  // namespace tensorpack
