// SPDX-License-Identifier: Apache-2.0
// The programs that tests start:
//   train_child wait <logdir> none|saver|periodic|chatty  trains until a signal ends it
//   train_child block <logdir> queue|staging|feed         the same, with data that stops coming
//   train_child stall <logdir> <rank>|all                 trains; after 3 steps the rank's data
//   stops
//                                                         coming until there is <logdir>/data
//   train_child resume <logdir> <epochs> <stop> <signal> [<rank>]
//                                                         trains a network, resuming what is there;
//                                                         rank <rank>, or the chief, sends itself
//                                                         <signal> after step <stop>, or at the end
//                                                         of epoch <-stop>, unless it was started
//                                                         again
//   train_child seed <logdir> <seed>|none                 trains it with that seed, or without one
//   train_child samples <logdir> <steps> <stop> none|early|libtorch
//                                                         takes samples of shuffled data without a
//                                                         seed, with 7, set when the data was made,
//                                                         or with 8 by libtorch's function; resumes
//                                                         what is there, and is killed after step
//                                                         <stop>
//   train_child twice <logdir>                            trains, says "between", and trains again
//                                                         when there is <logdir>/go
//   train_child folds <logdir>                            trains several times, one after the other
//                                                         and two at once
//   train_child drift <logdir> <how>                      trains for four epochs as ranks that go
//                                                         apart; see drift()
//   train_child validate <logdir>                         the chief validates after every epoch,
//                                                         until there is <logdir>/validated
//   train_child validate_data <logdir> stall|endless|last|step
//                                                         validates with data that stops coming, or
//                                                         that comes fast and never ends; in all
//                                                         processes, where that of the last one
//                                                         stops; or after a step in mid-epoch
//   train_child validate_shares <logdir> all|equal        validates in all processes, each on its
//                                                         share of 10 samples, or on equal shares
//   train_child fail <logdir>                             throws an Error while training
//   train_child throw <logdir>                            throws a number
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/hyper_param_setter.h"
#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/merge_all_summaries.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/checkpoint/checkpoint_writer.h"
#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/cache.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/fixed_size.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/rng.h"
#include "tensorpack/dataflow/shard.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/graph/initializer.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/tower/summary.h"
#include "tensorpack/train/auto_resume.h"
#include "tensorpack/train/distributed_trainer.h"
#include "tensorpack/train/run_main.h"
#include "tensorpack/train/trainer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/launch_environment.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/seed.h"

using namespace tensorpack;  // NOLINT: a program

namespace {

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

// Tells the parent where the loop is.
class Reporter final : public Callback {
 public:
  explicit Reporter(bool chatty = false) : chatty_(chatty) {}
  void trigger_step() override {
    if (global_step() == 3 || chatty_) say("running");
  }
  void after_train() override { say(fmt::format("after_train at {}", global_step())); }

 private:
  bool chatty_;
};

void wait_for_signal(const std::string& saver) {
  OwnedList<Callback> callbacks{Reporter(saver == "chatty")};
  if (saver == "saver" || saver == "chatty") callbacks.add(ModelSaver());
  if (saver == "periodic") callbacks.add(PeriodicTrigger(ModelSaver(), {.every_k_epochs = 5}));
  Trainer trainer;
  trainer.set_train_op(Op::nothing());
  trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 1'000'000'000});
}

// Three datapoints, and then none for ever.
Generator<DataPoint> three_and_wait() {
  for (int i = 0; i < 3; ++i) {
    DataPoint point{at::ones({1})};
    co_yield point;
  }
  while (true) ::pause();
}

Owned<InputSource> source_called(const std::string& name) {
  if (name == "feed") return FeedInput(FromGenerator(three_and_wait));
  if (name == "prefetch") return QueueInput(FromGenerator(three_and_wait) | prefetch(2));
  if (name == "parallel_map") {
    return QueueInput(FromGenerator(three_and_wait) |
                      parallel_map([](DataPoint point) { return point; }, {.threads = 2}));
  }
  QueueInput queue((FromGenerator(three_and_wait)));
  if (name == "staging") return StagingInput(std::move(queue));
  return queue;
}

void train_twice(const std::filesystem::path& dir) {
  for (int i = 0; i < 2; ++i) {
    Trainer trainer;
    trainer.set_train_op(Op::nothing());
    trainer.train({.steps_per_epoch = 2, .max_epoch = 1});
    if (i == 0) say("between");
    while (!std::filesystem::exists(dir / "go")) ::usleep(10'000);
  }
}

void wait_for_data(const std::string& source) {
  launch_train_with_config(
      {.model = Model{.inputs = {{"x", {-1}}},
                      .build_graph =
                          [](const at::Tensor& x) { return (get_variable("w", {}) * x).sum(); },
                      .optimizer = Adam()},
       .data = source_called(source),
       .callbacks = {Reporter(), ModelSaver()},
       .steps_per_epoch = 1'000'000},
      SimpleTrainer());
}

// Says when a rank begins the fourth step.
class SayFourthStep final : public Callback {
 public:
  SayFourthStep() { set_chief_only(false); }
  RunArgs before_run(RunContext&) override {
    if (global_step() == 3) say("in step 4");
    return {};
  }
};

void stall(const std::filesystem::path& dir, const std::string& whose) {
  const bool is_stalled = whose == "all" || whose == std::to_string(detect_launch().rank);
  const auto points = [dir, is_stalled]() -> Generator<DataPoint> {
    for (int i = 0;; ++i) {
      while (is_stalled && i >= 3 && !std::filesystem::exists(dir / "data")) ::usleep(10'000);
      DataPoint point{at::ones({1})};
      co_yield point;
    }
  };
  launch_train_with_config(
      {.model = Model{.inputs = {{"x", {-1}}},
                      .build_graph =
                          [](const at::Tensor& x) { return (get_variable("w", {}) * x).sum(); },
                      .optimizer = Adam()},
       .dataflow = FromGenerator(points),
       .callbacks = {SayFourthStep(), ModelSaver()},
       .steps_per_epoch = 1'000'000},
      DistributedTrainer());
}

// Prints the exact cost of every step.
class PrintCost final : public Callback {
 public:
  RunArgs before_run(RunContext&) override { return {.fetches = {"cost"}}; }
  void after_run(RunContext&, const FetchedValues& values) override {
    say(fmt::format("step {}.{} cost {:a}", epoch_num(), global_step(), values[0].item<double>()));
  }
  void trigger_epoch() override { say(fmt::format("end of epoch {}", epoch_num())); }
};

// Sends a signal to the process of one rank.
class Raise final : public Callback {
 public:
  Raise(int64_t stop, int signal, int rank) : stop_(stop), signal_(signal), rank_(rank) {
    set_chief_only(false);
  }
  void trigger_step() override { raise_if(global_step() == stop_); }
  void trigger_epoch() override { raise_if(epoch_num() == -stop_); }

 private:
  void raise_if(bool is_due) const {
    const LaunchEnvironment process = detect_launch();
    if (!is_due || process.rank != rank_ || process.attempt != 0) return;
    wait_for_checkpoints();  // so that it is known which one is the last
    std::raise(signal_);
  }

  int64_t stop_;
  int signal_;
  int rank_;
};

at::Tensor network(const at::Tensor& x, const at::Tensor& y) {
  at::Tensor l = FullyConnected("fc0", x, {.units = 16});
  l = at::relu(BatchNorm("bn", l));
  l = Dropout("dropout", l, {.rate = 0.4});
  l = FullyConnected("fc1", l, {.units = 1});
  const at::Tensor cost = named("cost", (l.squeeze(1) - y).square().mean());
  add_moving_summary(cost);
  return cost;
}

TrainConfig network_config(OwnedList<Callback> callbacks, int64_t epochs) {
  const int64_t size = 60 * ((detect_launch().size + 3) / 4);  // some batches for each rank
  return {
      .model = Model{.inputs = {{"x", {-1, 5}}, {"y", {-1}}},
                     .build_graph = network,
                     .optimizer = Adam({.lr = 0.01})},
      .dataflow = FakeData({{.shape = {5}}, {}}, {.size = size}) | shuffle() | shard() | batch(4),
      .callbacks = std::move(callbacks),
      .extra_callbacks = OwnedList<Callback>(),
      .steps_per_epoch = 5,
      .max_epoch = epochs,
  };
}

void train_and_resume(int64_t epochs, const Raise& raise) {
  set_global_seed(7);
  at::manual_seed(7);
  // The saver first: what comes after it must not be lost either.
  launch_train_with_config(
      AutoResumeTrainConfig(
          network_config({ModelSaver(), Raise(raise), PrintCost(), MergeAllSummaries()}, epochs)),
      DistributedTrainer());
}

void train_with_seed(const std::string& seed) {
  if (seed != "none") set_global_seed(std::stoull(seed));
  launch_train_with_config(network_config({PrintCost()}, 2), SimpleTrainer());
}

// Prints the sample and the random numbers of every step.
class PrintSample final : public Callback {
 public:
  PrintSample() { set_chief_only(false); }
  RunArgs before_run(RunContext&) override { return {.fetches = {"x", "rng", "rand"}}; }
  void after_run(RunContext&, const FetchedValues& values) override {
    say(fmt::format("step {} sample {} rng {} rand {:a}", global_step(), values[0].item<int64_t>(),
                    values[1].item<int64_t>(), values[2].item<float>()));
  }
};

// Random orders and numbers of every kind, before the ranks part and behind.
DataFlowPtr samples() {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < 12; ++i) points.push_back({at::scalar_tensor(i, at::kLong)});
  const auto noise = [](DataPoint point, Rng& rng) {
    const at::Tensor drawn = at::scalar_tensor(static_cast<int64_t>(rng.below(1 << 30)), at::kLong);
    return DataPoint{point[0], drawn, at::rand({})};
  };
  return FromList(points) | shuffle() | cache({.shuffle = true}) | shard() | shuffle() |
         parallel_map(noise, {.threads = 2}) | batch(1);
}

void take_samples(int64_t steps, int64_t stop, const std::string& seed) {
  if (seed == "libtorch") at::manual_seed(8);
  DataFlowPtr flow = samples();
  flow->next();  // reading the data early changes nothing of it
  if (seed == "early") set_global_seed(7);
  launch_train_with_config(
      AutoResumeTrainConfig(
          {.model =
               Model{.inputs = {{"x", {-1}, at::kLong}, {"rng", {-1}, at::kLong}, {"rand", {-1}}},
                     .build_graph =
                         [](const at::Tensor& x, const at::Tensor& rng, const at::Tensor& rand) {
                           return (get_variable("w", {}) * (x + rng + rand)).sum();
                         },
                     .optimizer = SGD({.lr = 0.1})},
           .dataflow = std::move(flow),
           .callbacks = {PeriodicTrigger(ModelSaver(), {.every_k_steps = 3}), PrintSample(),
                         Raise(stop, SIGKILL, 0)},
           .extra_callbacks = OwnedList<Callback>(),
           .monitors = OwnedList<MonitorBase>(),
           .steps_per_epoch = steps,
           .max_epoch = 1}),
      DistributedTrainer());
}

// Trains a number to be the target, and prints what it came to.
void train_fold(double target, const std::shared_ptr<ProcessGroup>& group = nullptr) {
  DistributedTrainer trainer({.processes = group, .graph = {.seed = 1}});
  launch_train_with_config(
      {.model = Model{.inputs = {{"x", {-1}}},
                      .build_graph =
                          [target](const at::Tensor& x) {
                            const at::Tensor w = get_variable("w", {}, init::zeros());
                            return named("cost", (w * x - target).square().mean());
                          },
                      .optimizer = SGD({.lr = 0.1})},
       .dataflow = FromList(std::vector<DataPoint>(64, {at::ones({})})) | shard() | batch(4),
       .extra_callbacks = OwnedList<Callback>(),
       .monitors = OwnedList<MonitorBase>(),
       .max_epoch = 10},
      trainer);
  const auto value = trainer.variables().at("w").tensor.item<double>();
  say(fmt::format("target {} came to {:.3f}", target, value));
}

void train_folds() {
  train_fold(1);
  train_fold(2);
  const std::shared_ptr<ProcessGroup> group = ProcessGroup::create();
  train_fold(3, group);
  train_fold(4, group);
  const std::shared_ptr<ProcessGroup> groups[] = {ProcessGroup::create(), ProcessGroup::create()};
  auto fifth = std::async(std::launch::async, [&] { train_fold(5, groups[0]); });
  auto sixth = std::async(std::launch::async, [&] { train_fold(6, groups[1]); });
  fifth.get();
  sixth.get();
}

// Calls a function after the second step of every epoch.
class InStep final : public Callback {
 public:
  explicit InStep(std::function<void(Callback&)> function) : function_(std::move(function)) {}
  void trigger_step() override {
    if (local_step() == 1) function_(*this);
  }

 private:
  std::function<void(Callback&)> function_;
};

// Says what the learning rate is at the end of every epoch.
CallbackFactory tell_learning_rate() {
  CallbackFactory tell({.trigger = [](Callback& self) {
    const at::Tensor& rate = self.graph().variables().at("learning_rate").tensor;
    say(fmt::format("epoch {} learning_rate {:.4g}", self.epoch_num(), rate.item<double>()));
  }});
  tell.set_chief_only(false);
  return tell;
}

// How ranks go apart: the chief alone assigns ("assign"), rank 1 alone fills a tensor ("fill"), has
// another rate of dropout ("rate") or another scale of the loss ("scale"); or nothing is wrong, and
// the chief decides the learning rate ("plateau").
void drift(const std::string& how) {
  set_global_seed(7);
  const bool is_odd = detect_launch().rank == 1;
  OwnedList<Callback> callbacks;
  if (how == "assign") {
    callbacks.add(InStep([](Callback& self) {
      self.graph().variables().at("learning_rate").assign(at::full({}, 0.001));
    }));
  }
  if (how == "fill") {
    InStep fill([is_odd](Callback& self) {
      if (is_odd) self.graph().variables().at("learning_rate").tensor.fill_(0.001);
    });
    fill.set_chief_only(false);
    callbacks.add(std::move(fill));
  }
  if (how == "plateau") {
    callbacks.add(CallbackFactory({.trigger = [](Callback& self) {
      self.trainer().monitors().put_scalar("error", self.epoch_num() == 1 ? 0.5 : 0.7);
    }}));
    callbacks.add(HyperParamSetterWithFunc("learning_rate",
                                           [](int64_t epoch, double old, const Monitors& monitors) {
                                             return epoch == 0 || monitors.get_latest("error") < 0.6
                                                        ? old
                                                        : old / 2;
                                           },
                                           {.decided_by_chief = true}));
    callbacks.add(tell_learning_rate());
  }
  TrainConfig config = network_config(std::move(callbacks), 4);
  config.model.build_graph = [=](const at::Tensor& x, const at::Tensor& y) {
    at::Tensor l = at::relu(FullyConnected("fc0", x, {.units = 16}));
    l = Dropout("dropout", l, {.rate = how == "rate" && is_odd ? 0.6 : 0.2});
    l = FullyConnected("fc1", l, {.units = 1}) * (how == "scale" && is_odd ? 2.0 : 1.0);
    return named("cost", (l.squeeze(1) - y).square().mean());
  };
  launch_train_with_config(std::move(config), DistributedTrainer());
}

void validate(const std::filesystem::path& dir) {
  CallbackFactory validation({.trigger = [dir](Callback&) {
    say("validating");
    while (!std::filesystem::exists(dir / "validated")) ::usleep(10'000);
  }});
  launch_train_with_config(network_config({ModelSaver(), std::move(validation)}, 1000),
                           DistributedTrainer());
}

// The saver comes behind what does not end.
void validate_data(const std::string& how) {
  const LaunchEnvironment place = detect_launch();
  const bool ends = how == "last" && place.rank + 1 < place.size;
  const auto points = [how, ends]() -> Generator<DataPoint> {
    for (int i = 0; !ends || i < 3; ++i) {
      if (i == 1) say("validating");
      while (!ends && how != "endless" && i > 0) ::pause();
      DataPoint point{at::ones({1, 5}), at::ones({1})};
      co_yield point;
    }
  };
  OwnedList<Callback> callbacks;
  InferenceRunner runner(FromGenerator(points) | fixed_size(1'000'000'000), {ScalarStats({"cost"})},
                         {.on_all_processes = how == "last"});
  if (how == "step") {
    callbacks.add(PeriodicTrigger(std::move(runner), {.every_k_steps = 3}));
  } else {
    callbacks.add(std::move(runner));
  }
  callbacks.add(ModelSaver());
  launch_train_with_config(AutoResumeTrainConfig(network_config(std::move(callbacks), 1000)),
                           DistributedTrainer());
}

// Samples 0 to 9, of which 8 and 9 are wrong, in batches of 4: the last ones are smaller.
void validate_in_all_processes(bool equal) {
  std::vector<DataPoint> samples;
  for (int i = 0; i < 10; ++i) samples.push_back({at::full({}, i < 8 ? 0. : 1., at::kFloat)});
  DataFlowPtr data = FromList(samples) | filter([](const DataPoint&) { return true; }) |
                     shard({.equal = equal}) | batch(4, {.remainder = true});
  DistributedTrainer trainer({.graph = {.seed = 1}});
  trainer.setup_graph(
      {{"x", {-1}}}, QueueInput(FromList(samples) | batch(2)),
      [](const at::Tensor& x) {
        named("incorrect_vector", x);
        named("accuracy", 1 - x.mean());
        return named("cost", (get_variable("w", {}) * x).mean());
      },
      SGD({.lr = 0.01}));
  auto tell = CallbackFactory({.trigger = [](Callback& self) {
    const Monitors& monitors = self.trainer().monitors();
    say(fmt::format("error {:.6f} accuracy {:.6f}", monitors.get_latest("validation_error"),
                    monitors.get_latest("validation_accuracy")));
  }});
  tell.set_chief_only(false);
  trainer.train({.callbacks = {InferenceRunner(QueueInput(std::move(data)),
                                               {ClassificationError(), ScalarStats({"accuracy"})},
                                               {.on_all_processes = true}),
                               std::move(tell)},
                 .steps_per_epoch = 2,
                 .max_epoch = 2});
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] {
    const std::vector<std::string> words(argv + 1, argv + argc);
    set_logger_dir(words.at(1), LogDirAction::kKeep);
    if (words.at(0) == "wait") {
      wait_for_signal(words.at(2));
    } else if (words.at(0) == "block") {
      wait_for_data(words.at(2));
    } else if (words.at(0) == "stall") {
      stall(words.at(1), words.at(2));
    } else if (words.at(0) == "twice") {
      train_twice(words.at(1));
    } else if (words.at(0) == "seed") {
      train_with_seed(words.at(2));
    } else if (words.at(0) == "samples") {
      take_samples(std::stoll(words.at(2)), std::stoll(words.at(3)), words.at(4));
    } else if (words.at(0) == "folds") {
      train_folds();
    } else if (words.at(0) == "drift") {
      drift(words.at(2));
    } else if (words.at(0) == "validate") {
      validate(words.at(1));
    } else if (words.at(0) == "validate_data") {
      validate_data(words.at(2));
    } else if (words.at(0) == "validate_shares") {
      validate_in_all_processes(words.at(2) == "equal");
    } else if (words.at(0) == "fail") {
      Trainer trainer;
      trainer.set_train_op(Op::nothing());
      trainer.train({.callbacks = {CallbackFactory(
                         {.trigger = [](Callback&) { throw Error("[fail] it is broken."); }})},
                     .steps_per_epoch = 1});
    } else if (words.at(0) == "throw") {
      throw 7;  // NOLINT: that is the point
    } else {
      const int rank = words.size() > 5 ? std::stoi(words[5]) : 0;
      train_and_resume(std::stoll(words.at(2)),
                       Raise(std::stoll(words.at(3)), std::stoi(words.at(4)), rank));
    }
  });
}
