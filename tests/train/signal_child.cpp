// SPDX-License-Identifier: Apache-2.0
// Trains until a signal ends it: `signal_child <logdir> [saver | periodic]`.
#include <fmt/format.h>

#include <string>

#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/train/run_main.h"
#include "tensorpack/train/trainer.h"
#include "tensorpack/utils/logger.h"

using namespace tensorpack;  // NOLINT: a program

namespace {

// Tells the parent where the loop is.
class Reporter final : public Callback {
 public:
  void trigger_step() override {
    if (global_step() == 3) say("running");
  }
  void after_train() override { say(fmt::format("after_train at {}", global_step())); }

 private:
  static void say(const std::string& text) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }
};

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    set_logger_dir(argv[1], LogDirAction::kKeep);
    const std::string saver = argc > 2 ? argv[2] : "";
    OwnedList<Callback> callbacks{Reporter()};
    if (saver == "saver") callbacks.add(ModelSaver());
    if (saver == "periodic") callbacks.add(PeriodicTrigger(ModelSaver(), {.every_k_epochs = 5}));
    Trainer trainer;
    trainer.set_train_op(Op::nothing());
    trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 1'000'000'000});
  });
}
