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
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

class ProgressMeter;
class WorkerTeam;

/// The data of an InferenceRunner: a dataflow or an input source, by value or by unique_ptr.
class InferenceInput {
 public:
  template <typename T>
  requires(!std::same_as<std::remove_cvref_t<T>, InferenceInput>)
      InferenceInput(T&& input);  // NOLINT: implicit

  /// Has the data copied ahead to a device that is not the CPU.
  void stage(c10::Device device) { source_ = staged(std::move(source_), {device}); }
  /// Throws Error if it is known that a pass would never end.
  void check_ends() const;
  /// Starts a pass from the beginning of the data.
  void start();
  /// The next datapoint; nullopt at the end of the pass.
  std::optional<DataPoint> next();
  std::optional<int64_t> size() const { return source_->size(); }
  void stop() { source_->stop(); }
  /// Datapoints left out at the end of passes so far, because they made no whole batch.
  int64_t left_out() const;
  /// How many shard() leaves out.
  struct ByShard {
    bool is_there = false;   ///< whether there is a shard() at all
    int64_t so_far = 0;      ///< in the passes so far
    int64_t every_pass = 0;  ///< 0, too, where it is not known before the pass
  };
  ByShard left_out_by_shard() const;

 private:
  void check_that_it_ends() const;

  std::unique_ptr<InputSource> source_;
  bool ends_with_pass_ = false;  // by itself; otherwise after size() datapoints, if that is known
  int64_t count_ = 0;
};

/// How many samples a datapoint has.
using CountSamples = std::function<int64_t(const DataPoint&)>;

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
  /// the processes, and report the same everywhere. A shard() of equal parts that leaves something
  /// out is an Error. Otherwise the chief does all.
  bool on_all_processes = false;
  /// Says how many samples a datapoint has, by which ScalarStats weighs it. By default it is the
  /// first dimension of the inputs for which that is open (-1), or of the first input where it is
  /// open for none. Where inputs differ in it, a datapoint counts as one sample, and the log says
  /// so once.
  CountSamples count_samples = {};
};

/// Runs the model in prediction mode over a data set, whenever triggered, and reports what the
/// inferencers make of it.
///
/// A pass begins with the first datapoint and ends with the data, whatever its size() says: with
/// the pass of a flow, also of one behind a QueueInput; a source without passes ends after size()
/// datapoints. What batch() leaves out at the end, for want of {.remainder = true}, the log tells
/// once. A pass does not count as a step. On CUDA the data is copied ahead by a StagingInput.
///
/// Throws Error when the data is known never to end, such as that of repeat(), and in a pass that
/// does not end within a million datapoints, unless the data knows its size. Throws Error before
/// the first step when the trainer has no tower function, a fetch is unknown or the first datapoint
/// does not fit the tower's inputs.
class InferenceRunner final : public Callback {
 public:
  InferenceRunner(InferenceInput input, OwnedList<Inferencer> inferencers,
                  InferenceRunnerOptions options = {});
  InferenceRunner(InferenceRunner&&) noexcept;
  InferenceRunner& operator=(InferenceRunner&&) noexcept;
  ~InferenceRunner() override;

  ReportedScalars reports() const override;
  void setup_graph() override;
  void before_train() override;
  void trigger() override;
  void after_train() override;

 private:
  // What was fetched for a datapoint, and how many samples it has.
  struct Fetched {
    std::vector<at::Tensor> values;
    int64_t samples;
  };
  using Take = std::function<void(Fetched)>;

  void build_towers();
  void check_fetches();
  int64_t run_pass(const Take& take);
  void run_on_one(ProgressMeter& meter, const Take& take);
  void run_on_several(ProgressMeter& meter, const Take& take);
  std::string run_own_part(ProcessGroup& processes);
  bool run_pass_on_all(ProcessGroup& processes);
  void check_shares() const;
  void hand_out(const Fetched& fetched);
  int64_t samples_of(const DataPoint& datapoint) const;
  Feeds feeds(const DataPoint& datapoint) const;

  InferenceInput input_;
  OwnedList<Inferencer> inferencers_;
  InferenceRunnerOptions options_;
  std::vector<TowerHandle> towers_;
  // Of several towers: a session and a thread each, so that none waits for another.
  std::vector<detail::Pimpl<Session>> sessions_;
  detail::Pimpl<WorkerTeam> team_;
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
  if constexpr (std::is_lvalue_reference_v<T>) {
    static_assert(!std::is_lvalue_reference_v<T>, "Write std::move(data) to give the data away.");
  } else if constexpr (std::derived_from<Object, DataFlow>) {
    source_ = std::make_unique<FeedInput>(Owned<DataFlow>(std::forward<T>(input)),
                                          FeedInputOptions{.infinite = false});
  } else {
    static_assert(std::derived_from<Object, InputSource>,
                  "Pass a DataFlow or an InputSource, by value or by unique_ptr.");
    source_ = detail::make_owned<InputSource>(std::forward<T>(input));
  }
  TP_CHECK(source_ != nullptr, "InferenceRunner", "the input is null. Pass a dataflow.");
  ends_with_pass_ = source_->end_with_pass();
}

}  // namespace tensorpack
