// SPDX-License-Identifier: Apache-2.0
// What callbacks, summaries and monitors cost.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include "benchmarks/groups.h"
#include "benchmarks/silence.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/pooling.h"
#include "tensorpack/monitors/tf_event_writer.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/tower/summary.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::bench {
namespace {

constexpr int64_t kStepsPerEpoch = 100;

// From the first step to the end of the last epoch.
class TimeLoop final : public Callback {
 public:
  explicit TimeLoop(double& seconds) : seconds_(seconds) {}
  void before_epoch() override {
    if (epoch_num() == 2) timer_ = Timer();  // the first one prepares programs
  }
  void before_train() override { timer_ = Timer(); }
  void after_train() override { seconds_ = timer_.seconds(); }

 private:
  double& seconds_;
  Timer timer_;
};

// The size of the default example, on 64 images of 28 x 28.
at::Tensor small_net(const at::Tensor& image, const at::Tensor& label) {
  at::Tensor x = Conv2D("conv0", image, {.filters = 16, .kernel_size = 3});
  x = MaxPooling("pool0", at::relu(x), 2);
  x = Conv2D("conv1", x, {.filters = 16, .kernel_size = 3});
  x = MaxPooling("pool1", at::relu(x), 2);
  const at::Tensor logits = FullyConnected("linear", x.flatten(1), {.units = 10});
  const at::Tensor cost = named("cost", at::nll_loss(at::log_softmax(logits, 1), label));
  const at::Tensor accuracy = named("accuracy", logits.argmax(1).eq(label).to(at::kFloat).mean());
  add_moving_summary(cost, accuracy);
  add_param_summary({{".*/W"}});
  return cost;
}

// Seconds of an epoch, after the first.
double train(bool with_defaults, int64_t epochs) {
  const Silence silence;
  const TempDir dir;
  set_logger_dir(dir.path(), LogDirAction::kKeep);
  double seconds = 0;
  {
    SimpleTrainer trainer({.seed = 1});
    trainer.setup_graph(
        {{"image", {-1, 1, 28, 28}}, {"label", {-1}, at::kLong}},
        FeedInput(FromList({{at::rand({64, 1, 28, 28}), at::zeros({64}, at::kLong)}})), small_net,
        SGD({.lr = 0.01}));
    TrainOptions options{.callbacks = {TimeLoop(seconds)},
                         .steps_per_epoch = kStepsPerEpoch,
                         .max_epoch = epochs + 1};
    if (!with_defaults) {
      options.extra_callbacks = OwnedList<Callback>();
      options.monitors = OwnedList<MonitorBase>();
    }
    trainer.train_with_defaults(std::move(options));
  }
  reset_logger_dir();
  return seconds;
}

Figure default_overhead(const Stopwatch& watch) {
  const std::vector<double> times = watch.alternate({
      .sides = {[](int64_t epochs) { return train(true, epochs); },
                [](int64_t epochs) { return train(false, epochs); }},
      .repetitions = 9,
      .min_seconds = 1,
  });
  return {.value = 100 * (times[0] / times[1] - 1),
          .unit = "%",
          .ours = times[0],
          .peer = times[1],
          .peer_name = "no callbacks",
          .repetitions = watch.repetitions(9),
          .note = fmt::format("epochs of {} steps", kStepsPerEpoch)};
}

// One scalar to an event file, the flush at the end of an epoch of 100 included.
Figure event_scalar(const Stopwatch& watch) {
  const TempDir dir;
  TFEventWriter writer({.dir = dir.path(), .writes_graph = false});
  LoopState loop;
  writer.before_train(loop);
  return watch.measure({.step = [&] {
    writer.process_scalar("cost", 0.5, loop);
    writer.trigger_step(loop);
    if (++loop.global_step % kStepsPerEpoch == 0) writer.trigger_epoch(loop);
  }});
}

}  // namespace

void add_callbacks_benchmarks(Suite& suite) {
  suite.add("callbacks/default_overhead_percent", default_overhead);
  suite.add("monitors/event_scalar_us", event_scalar);
}

}  // namespace tensorpack::bench
