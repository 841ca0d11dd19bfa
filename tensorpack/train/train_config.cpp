// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/train_config.h"

#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

Owned<InputSource> source_of(TrainConfig& config) {
  TP_CHECK(!(config.dataflow && config.data), "TrainConfig",
           "both .dataflow and .data are set. Set the one you want to train on.");
  TP_CHECK(config.dataflow || config.data, "TrainConfig",
           "there is no data. Set .dataflow, or .data to an input source.");
  if (config.data) return std::move(config.data);
  logging::info("The dataflow is read ahead by a QueueInput.");
  return QueueInput(std::move(config.dataflow));
}

}  // namespace

TrainConfig detail::consume(TrainConfig& config) {
  TP_CHECK(config.model.build_graph || config.model.optimizer, "TrainConfig",
           "there is no model. Set .model; of a config that a training was launched with before, "
           "which consumed it, make another one.");
  return std::exchange(config, TrainConfig());
}

void launch_train_with_config(TrainConfig& named, SingleCostTrainer& trainer) {
  TrainConfig config = detail::consume(named);
  Owned<InputSource> input = source_of(config);
  if (!config.steps_per_epoch) config.steps_per_epoch = input->size();
  TP_CHECK(config.steps_per_epoch.has_value(), "TrainConfig",
           "steps_per_epoch is not set and the data does not know its size. Set "
           ".steps_per_epoch.");
  trainer.setup_graph(std::move(config.model.inputs), std::move(input),
                      std::move(config.model.build_graph), std::move(config.model.optimizer));
  trainer.train_with_defaults({
      .callbacks = std::move(config.callbacks),
      .extra_callbacks = std::move(config.extra_callbacks),
      .monitors = std::move(config.monitors),
      .session = config.session,
      .session_init = std::move(config.session_init),
      .steps_per_epoch = config.steps_per_epoch,
      .starting_epoch = config.starting_epoch,
      .max_epoch = config.max_epoch,
      .starting_step = config.starting_step,
  });
}

void launch_train_with_config(TrainConfig& config, SingleCostTrainer&& trainer) {
  launch_train_with_config(config, trainer);
}

void launch_train_with_config(TrainConfig&& config, SingleCostTrainer& trainer) {
  launch_train_with_config(config, trainer);
}

void launch_train_with_config(TrainConfig&& config, SingleCostTrainer&& trainer) {
  launch_train_with_config(config, trainer);
}

}  // namespace tensorpack
