// SPDX-License-Identifier: Apache-2.0
// A model of the engine's benchmarks, trained on several towers.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>

#include "benchmarks/engine_models.h"
#include "benchmarks/graph_parameters.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/parallel/data_parallel.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/define_tower.h"
#include "tensorpack/utils/startup.h"

namespace tensorpack::bench {

class ParallelTraining {
 public:
  /// All towers together train on `batch_size` examples, fed as they are in memory.
  ParallelTraining(const std::string& model, const DataParallel& parallel, int64_t batch_size = 0)
      : graph_(with_devices({}, parallel)) {
    tune_process();
    const Workload work = workload(model);
    std::vector<int64_t> shape = work.batch;
    if (batch_size > 0) shape[0] = batch_size;
    shape[0] /= static_cast<int64_t>(parallel.devices.size());
    feeds_ = {{"x", at::randn(shape)},
              {"label", at::randint(0, 10, {shape[0]}, at::TensorOptions(at::kLong))}};
    const auto optimizer = std::make_shared<SGD>(Momentum(0.01));
    std::vector<Op> towers;
    for (int i = 0; i < static_cast<int>(parallel.devices.size()); ++i) {
      towers.push_back(
          define_tower(
              graph_, tower_options(parallel, i),
              {.op_name = "tower" + std::to_string(i),
               .inputs = {{"x", shape}, {"label", {shape[0]}, at::kLong}},
               .function =
                   [model](const at::Tensor& x, const at::Tensor& label) {
                     GraphParameters parameters;
                     return named("cost",
                                  at::cross_entropy_loss(logits_of(model, parameters, x), label));
                   },
               .body = [optimizer](TowerContext& t) { minimize(*optimizer, t.outputs()[0]); }})
              .op());
    }
    op_ =
        parallel.is_parallel() ? Op::parallel("step", towers, make_exchange(parallel)) : towers[0];
    graph_.finalize();
    session_ = std::make_unique<Session>(graph_);
  }

  void step() { session_->run(op_, {"cost"}, feeds_); }

 private:
  Graph graph_;
  Op op_;
  Feeds feeds_;
  std::unique_ptr<Session> session_;
};

}  // namespace tensorpack::bench
