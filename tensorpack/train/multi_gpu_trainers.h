// SPDX-License-Identifier: Apache-2.0
// Trainers with a tower on each of several devices. One line changes:
//
//   SimpleTrainer trainer;                              // one device
//   SyncMultiGPUTrainerReplicated trainer({0, 1});      // GPUs 0 and 1
//   SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
//
// Constructed from a TrainConfig, they take all visible GPUs unless devices are given.
//
// Each tower takes its own batch: the total batch is (batch of the input) x (towers). Adjust
// steps_per_epoch and the learning rate accordingly.
#pragma once

#include "tensorpack/train/single_cost_trainer.h"

namespace tensorpack {

struct ReplicatedOptions {
  /// Gradients are averaged over the towers, otherwise added up.
  bool average = true;
  /// Whether the copies of variables are made equal at the end of every epoch, too.
  bool sync_every_epoch = true;
  /// Whether they are compared then; see DataParallel.
  bool check_equal = true;
  GraphOptions graph = {};
};

/// Every tower has its own copy of the variables. Gradients are exchanged, and every copy is
/// updated with the same ones; the first tower's is saved.
class SyncMultiGPUTrainerReplicated final : public SingleCostTrainer {
 public:
  explicit SyncMultiGPUTrainerReplicated(Devices devices, ReplicatedOptions options = {});
  template <detail::IsTrainConfig Config>
  explicit SyncMultiGPUTrainerReplicated(Config&& config, Devices devices = Devices::visible(),
                                         ReplicatedOptions options = {})
      : SyncMultiGPUTrainerReplicated(std::move(devices), options) {
    take_config(config);
  }
};

/// Where the variables of a parameter server are.
enum class ServerDevice {
  kDefault,  ///< kGpu for up to two towers, kCpu for more
  kCpu,
  kGpu,  ///< the devices of the towers, each variable where the fewest elements are yet
};

struct ParameterServerOptions {
  ServerDevice ps_device = ServerDevice::kDefault;
  GraphOptions graph = {};
};

/// All towers share one set of variables. Their gradients are averaged and applied once.
class SyncMultiGPUTrainerParameterServer final : public SingleCostTrainer {
 public:
  explicit SyncMultiGPUTrainerParameterServer(Devices devices, ParameterServerOptions options = {});
  template <detail::IsTrainConfig Config>
  explicit SyncMultiGPUTrainerParameterServer(Config&& config, Devices devices = Devices::visible(),
                                              ParameterServerOptions options = {})
      : SyncMultiGPUTrainerParameterServer(std::move(devices), options) {
    take_config(config);
  }
};

/// SyncMultiGPUTrainerParameterServer with the variables on the CPU.
class SyncMultiGPUTrainer final : public SingleCostTrainer {
 public:
  explicit SyncMultiGPUTrainer(Devices devices, GraphOptions graph = {});
  template <detail::IsTrainConfig Config>
  explicit SyncMultiGPUTrainer(Config&& config, Devices devices = Devices::visible(),
                               GraphOptions graph = {})
      : SyncMultiGPUTrainer(std::move(devices), graph) {
    take_config(config);
  }
};

struct AsyncOptions {
  /// Divides each tower's gradients by the number of towers.
  bool scale_gradient = true;
  GraphOptions graph = {};
};

/// All towers share one set of variables, and each applies its own gradients without waiting for
/// the others. The result depends on who comes first.
class AsyncMultiGPUTrainer final : public SingleCostTrainer {
 public:
  explicit AsyncMultiGPUTrainer(Devices devices, AsyncOptions options = {});
  template <detail::IsTrainConfig Config>
  explicit AsyncMultiGPUTrainer(Config&& config, Devices devices = Devices::visible(),
                                AsyncOptions options = {})
      : AsyncMultiGPUTrainer(std::move(devices), options) {
    take_config(config);
  }
};

}  // namespace tensorpack
