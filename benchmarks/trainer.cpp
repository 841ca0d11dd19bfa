// SPDX-License-Identifier: Apache-2.0
// What the loop itself costs, around a step that does nothing.
#include "tensorpack/train/trainer.h"

#include "benchmarks/groups.h"
#include "benchmarks/silence.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::bench {
namespace {

// Times the steps alone: neither setting up nor winding up belongs to a step.
class TimeSteps final : public Callback {
 public:
  explicit TimeSteps(double& seconds) : seconds_(seconds) {}
  void before_epoch() override { timer_ = Timer(); }
  void after_epoch() override { seconds_ = timer_.seconds(); }

 private:
  double& seconds_;
  Timer timer_;
};

// Takes part in everything, as a user's callback may.
class Busy final : public Callback {
 public:
  RunArgs before_run(RunContext&) override { return {}; }
  void after_run(RunContext&, const FetchedValues&) override { ++calls_; }
  void trigger_step() override { calls_ += local_step(); }

 private:
  int64_t calls_ = 0;
};

double train(int64_t steps, int user_callbacks) {
  const Silence silence;
  double seconds = 0;
  OwnedList<Callback> callbacks{TimeSteps(seconds)};
  for (int i = 0; i < user_callbacks; ++i) callbacks.add(Busy());
  Trainer trainer;
  trainer.set_train_op(Op::nothing());
  trainer.train_with_defaults(
      {.callbacks = std::move(callbacks), .steps_per_epoch = steps, .max_epoch = 1});
  return seconds;
}

}  // namespace

void add_trainer_benchmarks(Suite& suite) {
  suite.add("trainer/empty_step_us", [](const Stopwatch& watch) {
    return watch.measure({.step = [](int64_t steps) { return train(steps, 0); }});
  });
  suite.add("trainer/empty_step_ten_callbacks_us", [](const Stopwatch& watch) {
    return watch.measure({.step = [](int64_t steps) { return train(steps, 10); }});
  });
}

}  // namespace tensorpack::bench
