// SPDX-License-Identifier: Apache-2.0
// Everything a user needs. Tower functions are plain libtorch: torch::Tensor and its functions come
// with it.
#pragma once

#include <torch/types.h>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/progress_bar.h"
#include "tensorpack/callbacks/run_op.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/datapoints.h"
#include "tensorpack/dataflow/dataset/fashion_mnist.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/take.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/pooling.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/monitors/scalar_printer.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/hooked_session.h"
#include "tensorpack/session/session.h"
#include "tensorpack/session/session_init.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"
#include "tensorpack/tower/tower_handle.h"
#include "tensorpack/train/run_main.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/train/tower_trainer.h"
#include "tensorpack/train/train_config.h"
#include "tensorpack/train/trainer.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
using torch::Tensor;
}
