// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/tower_trainer.h"

#include <ATen/ATen.h>

#include <set>

#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/graph/check_batch.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/parallel/equal_variables.h"
#include "tensorpack/parallel/variable_sync.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/device.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

// Tells how full the queue of the source was in an epoch, and, once, that training waits for data.
class DataWatch {
 public:
  DataWatch(const InputSource& source, InputFeeder feeder)
      : stats_(source.stats()), feeder_(std::move(feeder)) {}

  void before_epoch() {
    timer_.reset();
    waited_before_ = feeder_.seconds_waited();
    if (!stats_) return;
    depth_before_ = stats_->depth_sum;
    looks_before_ = stats_->depth_count;
  }

  void after_epoch() {
    // Of less than a second, the beginning is too large a part.
    constexpr double kLongEnough = 1;
    constexpr double kTooMuch = 0.05;
    const double seconds = timer_.seconds();
    const double share = (feeder_.seconds_waited() - waited_before_) / seconds;
    if (has_told_ || seconds < kLongEnough || share <= kTooMuch) return;
    has_told_ = true;
    const auto slowest = stats_ ? slowest_stage(*stats_) : std::nullopt;
    logging::warning("Training waited for data {:.0f} % of the time. {}", 100 * share,
                     slowest
                         ? fmt::format("The slowest stage is {}: give it more threads, or less to "
                                       "do.",
                                       slowest->name)
                         : "Read ahead with a QueueInput.");
  }

  // The mean number of batches that waited in this epoch; nothing for sources without a queue.
  std::optional<double> mean_depth() const {
    if (!stats_ || stats_->depth_count == looks_before_) return std::nullopt;
    return static_cast<double>(stats_->depth_sum - depth_before_) /
           static_cast<double>(stats_->depth_count - looks_before_);
  }

  bool has_queue() const { return stats_ != nullptr; }
  const std::string& queue_name() const { return stats_->name; }

  /// Of the source and of the dataflow behind it.
  std::vector<StageReport> stages() const {
    return stats_ ? stage_report(*stats_) : std::vector<StageReport>();
  }

 private:
  std::shared_ptr<const StageStats> stats_;
  InputFeeder feeder_;
  Timer timer_;
  double waited_before_ = 0;
  int64_t depth_before_ = 0;
  int64_t looks_before_ = 0;
  bool has_told_ = false;
};

// Batches that were put back are still to be used.
int64_t batches_used(const InputSource& source, const InputFeeder& feeder) {
  return source.position() - feeder.batches_put_back();
}

std::string checksum_of(const InputFeeder::Batch& batch) {
  uint64_t sum = 0;
  for (const at::Tensor& tensor : batch) {
    if (!tensor.defined()) continue;  // it is fed in every run
    const at::Tensor bytes = tensor.detach().cpu().contiguous();
    sum = xxh64({static_cast<const char*>(bytes.data_ptr()), bytes.nbytes()}, sum);
  }
  return std::to_string(sum);
}

// Processes that train on the same data might as well be one.
void check_that_ranks_differ(const InputFeeder::Batch& first, ProcessGroup& processes) {
  const std::vector<std::string> sums = processes.all_gather(checksum_of(first));
  if (std::set<std::string>(sums.begin(), sums.end()).size() > 1) return;
  logging::warning(
      "All {} processes begin with the same batch. If they go on like that, they train on the same "
      "data: put shard() behind the data set, or give shuffle() another .seed in each.",
      processes.size());
}

// Starts the source before training, where an earlier run left it, looks at its first batch before
// there is a step to fail, and ends its threads after training.
// What is saved is how many batches all processes took: a resumed training may have fewer or more
// of them.
class InputSourceCallback final : public Callback {
 public:
  InputSourceCallback(InputSource& source, const InputFeeder& feeder,
                      const std::vector<TensorSpec>& inputs)
      : source_(&source), feeder_(feeder), inputs_(&inputs), watch_(source, feeder) {
    set_chief_only(false);
  }
  void before_train() override {
    if (!position_ && global_step() > 0) {
      logging::info("No position of the data was saved: it goes on at batch {}, the global_step.",
                    global_step());
    }
    feeder_.reset();
    source_->reset_state(position_ ? *position_ / ranks() : global_step());
    is_checked_ = false;
  }
  // The first batch is looked at when every callback is ready: one of them may be where data comes
  // from.
  void before_epoch() override {
    if (!is_checked_ && trainer().loop().steps_per_epoch > 0) look_at_first_batch();
    is_checked_ = true;
    watch_.before_epoch();
  }
  ReportedScalars reports() const override {
    if (!watch_.has_queue()) return no_scalars();
    return {.names = {watch_.queue_name() + "/queue_size"}, .are_all = true};
  }
  void after_epoch() override { watch_.after_epoch(); }
  void trigger_epoch() override {
    const auto depth = watch_.mean_depth();
    if (depth) trainer().monitors().put_scalar(watch_.queue_name() + "/queue_size", *depth);
    const auto stages = watch_.stages();
    if (!stages.empty()) trainer().monitors().put_stages(stages);
  }
  void after_train() override { source_->stop(); }
  std::string save_state() const override {
    return std::to_string(batches_used(*source_, feeder_) * ranks());
  }
  void load_state(const std::string& state) override {
    position_ = parse_integer(state);
    TP_CHECK(position_ && *position_ >= 0, "InputSource",
             "the position '{}' is not a non-negative integer.", state);
  }

 private:
  int64_t ranks() const {
    return trainer().processes() == nullptr ? 1 : trainer().processes()->size();
  }

  void look_at_first_batch() {
    const std::optional<InputFeeder::Batch> batch = feeder_.next();
    if (!batch) return;
    feeder_.put_back(*batch);
    try {
      const std::vector<at::Tensor> placed = place_batch(*inputs_, *batch);
      for (size_t i = 0; i < inputs_->size(); ++i) {
        if (placed[i].defined()) (*inputs_)[i].check(placed[i]);
      }
    } catch (...) {
      rethrow_with(
          fmt::format("in the first batch of the training data, from {}", source_->name()));
    }
    if (trainer().processes() != nullptr) check_that_ranks_differ(*batch, *trainer().processes());
  }

  InputSource* source_;
  InputFeeder feeder_;
  const std::vector<TensorSpec>* inputs_;
  DataWatch watch_;
  bool is_checked_ = false;
  std::optional<int64_t> position_;
};

// Makes the variables of all towers and processes equal to those of the first: after they were
// restored, and at the end of epochs, before other callbacks look at them. That must not hide that
// training has made them differ, so they are compared before.
class SyncVariables final : public Callback {
 public:
  explicit SyncVariables(const DataParallel& parallel)
      : every_epoch_(parallel.sync_every_epoch), checks_(parallel.check_equal) {
    set_chief_only(false);
  }
  ReportedScalars reports() const override { return no_scalars(); }
  void setup_graph() override { count_ = graph().variables().size(); }
  void before_train() override {
    const auto copies = static_cast<int64_t>(sync());
    if (copies > 0)
      logging::info("Copied {} to the replicas of towers.", counted(copies, "variable"));
  }
  void trigger_epoch() override {
    if (checks_) {
      check_equal_variables(
          graph(), {.count = count_, .processes = trainer().processes(), .epoch = epoch_num()});
    }
    if (!every_epoch_) return;
    average_accumulated_gradients(graph(), trainer().processes());
    sync();
  }

 private:
  size_t sync() {
    if (ProcessGroup* processes = trainer().processes()) {
      broadcast_variables(graph(), count_, *processes);
    }
    return copy_to_replicas(graph());
  }

  bool every_epoch_;
  bool checks_;
  size_t count_ = 0;  // the model's variables, in all processes
};

}  // namespace

TowerTrainer::TowerTrainer(GraphOptions graph) : Trainer(graph) {}

TowerTrainer::TowerTrainer(std::shared_ptr<Graph> graph) : Trainer(std::move(graph)) {}

TowerTrainer::TowerTrainer(DataParallel parallel, GraphOptions graph)
    : Trainer(with_devices(graph, parallel)), parallel_(std::move(parallel)) {
  check(parallel_);
  set_processes(parallel_.processes);
}

void TowerTrainer::setup_tower(std::vector<TensorSpec> inputs, Owned<InputSource> input,
                               TowerFunc tower) {
  TP_CHECK(!tower_func_, "setup_tower",
           "the trainer has a tower function already. Make another "
           "trainer for another model.");
  TP_CHECK(static_cast<bool>(input), "setup_tower", "there is no input source. Pass one.");
  check_signature(inputs);
  tower.check_arity(inputs);
  enclosing_scope_ = EnclosingScope();
  tower_func_ = std::move(tower);
  inputs_ = std::move(inputs);
  input_ = staged(std::move(input), devices()).share();
  feeder_ = [source = input_]() -> std::optional<InputFeeder::Batch> {
    std::optional<DataPoint> batch = source->next();
    if (!batch) return std::nullopt;
    return std::move(*batch).components();
  };
  register_callback(InputSourceCallback(*input_, feeder_, inputs_));
  if (parallel_.is_parallel()) register_callback(SyncVariables(parallel_));
}

// In the scope that was open when the trainer got its tower function, whatever is open now.
TowerHandle TowerTrainer::define_in_scope(TowerOptions options, TowerDefinition definition) {
  const FreshFrame frame;
  return enclosing_scope_.call(
      [&] { return define_tower(graph(), std::move(options), std::move(definition)); });
}

std::vector<c10::Device> TowerTrainer::devices() {
  const std::vector<c10::Device>& towers = parallel_.devices.list();
  return towers.empty() ? std::vector{graph().options().device} : towers;
}

Op TowerTrainer::define(const std::string& name, TowerBody body) {
  TP_CHECK(static_cast<bool>(tower_func_), "define",
           "op '{}' is defined before the tower. Call setup_tower() first.", name);
  std::vector<Op> ops;
  for (int i = 0; i < static_cast<int>(parallel_.devices.size()); ++i) {
    const TowerHandle tower = define_tower_op(name, body, i);
    if (!towers_.contains(tower.name())) towers_.add(tower);
    ops.push_back(tower.op());
  }
  if (!parallel_.is_parallel()) return ops[0];
  return Op::parallel(name, std::move(ops), make_exchange(parallel_));
}

std::string TowerTrainer::place_of_step() const {
  if (!input_) return Trainer::place_of_step();
  return fmt::format("in a training step (batches of the training data taken so far: {})",
                     batches_used(*input_, feeder_));
}

std::vector<FingerprintPart> TowerTrainer::data_fingerprint() const {
  FingerprintPart data{.name = "data"};
  const int64_t ranks = processes() ? processes()->size() : 1;
  FingerprintPart sizes{.name = "size of data", .under = counted(ranks, "rank")};
  const auto stats = input_ ? input_->stats() : nullptr;
  const auto batches = input_ ? input_->size() : std::nullopt;
  if (stats) {
    data.lines = describe_data(*stats);
    sizes.lines = describe_data_sizes(*stats);
  } else if (batches) {
    sizes.lines = {fmt::format("batches in a pass = {}", *batches)};
  }
  return {std::move(data), std::move(sizes)};
}

TowerHandle TowerTrainer::define_tower_op(const std::string& name, const TowerBody& body,
                                          int index) {
  const TowerOptions options = tower_options(parallel_, index);
  return define_in_scope(options,
                         {.op_name = options.name.empty() ? name : name + "/" + options.name,
                          .inputs = inputs_,
                          .function = tower_func_,
                          .body = body,
                          .feeder = feeder_});
}

TowerHandle TowerTrainer::build_prediction_tower(PredictionTowerOptions options) {
  if (!options.tower_func) {
    TP_CHECK(static_cast<bool>(tower_func_), "prediction tower",
             "'{}' is built before the trainer has a tower function. Call setup_graph() first.",
             options.name);
    options.tower_func = tower_func_;
    options.inputs = inputs_;
  }
  std::string name = options.name;
  for (int suffix = 1; towers_.contains(name); ++suffix) {
    name = options.name + std::to_string(suffix);
  }
  return towers_.add(define_in_scope(
      {.name = name, .is_training = false, .device = options.device, .shares_variables = true},
      {.inputs = options.inputs, .function = *options.tower_func}));
}

OnlinePredictor TowerTrainer::get_predictor(std::vector<std::string> input_names,
                                            std::vector<std::string> output_names,
                                            std::optional<c10::Device> device) {
  const c10::Device place = check_device(device.value_or(graph().options().device));
  const std::string name =
      place == graph().options().device ? "tower-pred" : "tower-pred-" + place.str();
  const TowerHandle tower = towers_.contains(name)
                                ? towers_[name]
                                : build_prediction_tower({.name = name, .device = place});
  return OnlinePredictor(
      graph(), tower,
      {.input_names = std::move(input_names), .output_names = std::move(output_names)},
      [session = session_]() -> Session& { return session->get(); });
}

}  // namespace tensorpack
