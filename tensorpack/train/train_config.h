// SPDX-License-Identifier: Apache-2.0
// The short way to train a model with one cost.
#pragma once

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/input_source/input_source.h"
#include "tensorpack/train/model_desc.h"
#include "tensorpack/train/single_cost_trainer.h"

namespace tensorpack {

/// All that launch_train_with_config() needs, consumed by it.
struct TrainConfig {
  /// A Model{.inputs = ...}, or an object of a class derived from ModelDesc.
  AnyModel model = {};
  /// The data: a dataflow, which is read ahead by a QueueInput, or an input source; not both.
  Owned<DataFlow> dataflow = {};
  Owned<InputSource> data = {};
  OwnedList<Callback> callbacks = {};
  /// {A(), B()}; default_callbacks() when there is no list, and none for an empty one,
  /// OwnedList<Callback>().
  OptionalList<Callback> extra_callbacks = {};
  /// default_monitors() when there is no list, and none for an empty one.
  OptionalList<MonitorBase> monitors = {};
  SessionOptions session = {};
  Owned<SessionInit> session_init = {};
  int64_t starting_epoch = 1;
  /// The size of the data when empty.
  std::optional<int64_t> steps_per_epoch = {};
  int64_t max_epoch = kDefaultMaxEpoch;
  /// How many steps of the first epoch were made by an earlier run.
  int64_t starting_step = 0;
};

namespace detail {
/// Moves the config out of its variable. Throws an Error if that was done before, or if it has no
/// model.
TrainConfig consume(TrainConfig& config);
}  // namespace detail

/// setup_graph() with the model and the data, then train_with_defaults() with the rest. A config
/// that has a name is consumed, too: another use of it throws an Error.
void launch_train_with_config(TrainConfig& config, SingleCostTrainer& trainer);
void launch_train_with_config(TrainConfig& config, SingleCostTrainer&& trainer);
void launch_train_with_config(TrainConfig&& config, SingleCostTrainer& trainer);
void launch_train_with_config(TrainConfig&& config, SingleCostTrainer&& trainer);

}  // namespace tensorpack
