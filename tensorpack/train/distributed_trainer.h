// SPDX-License-Identifier: Apache-2.0
// One process per device, on one host or several.
//
//   DistributedTrainer trainer;                    // tp launch -n 4 -- ./train, or mpirun,
//   torchrun, launch_train_with_config(config, trainer);     // srun; alone without any of them
#pragma once

#include "tensorpack/train/single_cost_trainer.h"

namespace tensorpack {

struct DistributedOptions {
  /// The towers of each process. By default one: on the GPU with the number of the process on its
  /// host if the graph is on CUDA, else on the CPU.
  Devices devices = {};
  /// Gradients are averaged over all towers of all processes, otherwise added up.
  bool average = true;
  /// What gradients are cast to between processes.
  Compression compression = Compression::kNone;
  /// Whether all processes take over the chief's variables at the end of every epoch, too. What is
  /// not trained by gradients, like moving averages, differs until then.
  bool broadcast_every_epoch = true;
  /// Whether what must be equal is compared then; see DataParallel.
  bool check_equal = true;
  /// How long a process may keep the others waiting: longer than the longest thing that the chief
  /// does alone, such as inference.
  std::chrono::milliseconds timeout = default_collective_timeout();
  /// How much of the gradients is exchanged at a time; see DataParallel.
  std::optional<int64_t> bucket_bytes = {};
  /// The processes, if they are not those that were started together. A group that was left at the
  /// end of an earlier training stands for another one of the same processes.
  std::shared_ptr<ProcessGroup> processes = {};
  GraphOptions graph = {};
};

/// What DistributedTrainer hands to TowerTrainer; for trainers of your own:
///
///   class MyTrainer : public TowerTrainer {
///    public:
///     MyTrainer() : TowerTrainer(distributed()) {...}
DataParallel distributed(DistributedOptions options = {});

/// Every process runs the whole program and one tower, or several; gradients are exchanged between
/// all of them. Rank 0 is the chief: it writes logs and checkpoints, and restores; the others take
/// over its variables. Each process reads data of its own: put shard() behind the data set.
class DistributedTrainer final : public SingleCostTrainer {
 public:
  explicit DistributedTrainer(DistributedOptions options = {});
  template <detail::IsTrainConfig Config>
  explicit DistributedTrainer(Config&& config, DistributedOptions options = {})
      : DistributedTrainer(std::move(options)) {
    take_config(config);
  }
};

/// The name that those who come from Tensorpack know.
using HorovodTrainer = DistributedTrainer;

}  // namespace tensorpack
