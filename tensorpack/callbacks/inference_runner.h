// SPDX-License-Identifier: Apache-2.0
// Validation during training.
//
//   InferenceRunner(FashionMnist("test") | batch(256, {.remainder = true}),
//                   {ScalarStats({"cost"}), ClassificationError()})
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/callbacks/inferencer.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/input_source.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/parallel/data_parallel.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/owned_list.h"
#include "tensorpack/utils/worker_team.h"

namespace tensorpack {

class ProgressMeter;

/// The data of an InferenceRunner: a dataflow or an input source, by value or by unique_ptr.
class InferenceInput {
 public:
  template <typename T>
  requires(!std::same_as<std::remove_cvref_t<T>, InferenceInput>)
      InferenceInput(T&& input);  // NOLINT: implicit

  /// Has the data copied ahead to a device that is not the CPU.
  void stage(c10::Device device) { source_ = staged(std::move(source_), {device}); }
  /// Starts a pass from the beginning of the data.
  void start();
  /// The next datapoint; nullopt at the end of the pass.
  std::optional<DataPoint> next();
  std::optional<int64_t> size() const { return source_->size(); }
  void stop() { source_->stop(); }
  /// Datapoints left out at the end of passes so far, because they made no whole batch.
  int64_t left_out() const;

 private:
  std::unique_ptr<InputSource> source_;
  bool may_repeat_ = false;  // an input source goes on with the next pass; a flow ends by itself
  int64_t count_ = 0;
};

struct InferenceRunnerOptions {
  /// A number is appended when another tower has the name.
  std::string tower_name = "InferenceTower";
  /// Another model than the trainer's; with it comes `inputs`.
  std::optional<TowerFunc> tower_func = {};
  std::vector<TensorSpec> inputs = {};
  std::optional<c10::Device> device = {};  ///< the graph's when empty
  /// Several devices, or one several times (Devices::cpu(2)): a tower on each, which run at the
  /// same time on a datapoint each. Inferencers see the datapoints in the order of the data.
  Devices devices = {};
  /// Every process that trains runs the model on data of its own, which shard({.equal = false})
  /// divides, and all hand each other what they computed: inferencers see it all, in the order of
  /// the processes, and report the same everywhere. Otherwise the chief does all.
  bool on_all_processes = false;
};

/// Runs the model in prediction mode over a data set, whenever triggered, and reports what the
/// inferencers make of it.
///
/// A pass begins with the first datapoint and ends with the data: of a flow, when it ends, whatever
/// its size() says; of an input source, when it ends or after size() datapoints. What batch()
/// leaves out at the end, for want of {.remainder = true}, the log tells once. A pass does not
/// count as a step. On CUDA the data is copied ahead by a StagingInput. Throws Error before the
/// first step when the trainer has no tower function, a fetch is unknown or the first datapoint
/// does not fit the tower's inputs.
class InferenceRunner final : public Callback {
 public:
  InferenceRunner(InferenceInput input, OwnedList<Inferencer> inferencers,
                  InferenceRunnerOptions options = {});

  ReportedScalars reports() const override;
  void setup_graph() override;
  void before_train() override;
  void trigger() override;
  void after_train() override;

 private:
  using Take = std::function<void(std::vector<at::Tensor>)>;

  void build_towers();
  void check_fetches();
  void run_pass(const Take& take);
  void run_on_one(ProgressMeter& meter, const Take& take);
  void run_on_several(ProgressMeter& meter, const Take& take);
  void run_pass_on_all(ProcessGroup& processes);
  void hand_out(const std::vector<at::Tensor>& values);
  Feeds feeds(const DataPoint& datapoint) const;

  InferenceInput input_;
  OwnedList<Inferencer> inferencers_;
  InferenceRunnerOptions options_;
  std::vector<TowerHandle> towers_;
  // Of several towers: a session and a thread each, so that none waits for another.
  std::vector<std::unique_ptr<Session>> sessions_;
  std::unique_ptr<WorkerTeam> team_;
  Fetches fetches_;                           // of all inferencers, each once
  std::vector<std::vector<size_t>> indices_;  // for each inferencer, into fetches_
};

namespace detail {

template <typename T>
struct Pointee {
  using Type = T;
};
template <typename T>
struct Pointee<std::unique_ptr<T>> {
  using Type = T;
};

}  // namespace detail

template <typename T>
requires(!std::same_as<std::remove_cvref_t<T>, InferenceInput>)
    InferenceInput::InferenceInput(T&& input) {
  using Object = typename detail::Pointee<std::remove_cvref_t<T>>::Type;
  if constexpr (std::derived_from<Object, DataFlow>) {
    source_ = std::make_unique<FeedInput>(Owned<DataFlow>(std::forward<T>(input)),
                                          FeedInputOptions{.infinite = false});
  } else {
    static_assert(std::derived_from<Object, InputSource>,
                  "Pass a DataFlow or an InputSource, by value or by unique_ptr.");
    source_ = detail::make_owned<InputSource>(std::forward<T>(input));
    may_repeat_ = true;
  }
  TP_CHECK(source_ != nullptr, "InferenceRunner", "the input is null. Pass a dataflow.");
}

}  // namespace tensorpack
