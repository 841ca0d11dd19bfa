// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/multi_gpu_trainers.h"

namespace tensorpack {
namespace {

// The servers that Tensorpack chooses: beyond this many towers the traffic of one GPU is too much.
constexpr size_t kMostTowersOfGpuServer = 2;
constexpr size_t kMostAsyncTowersOfGpuServer = 3;

std::optional<c10::Device> server(bool is_on_cpu) {
  return is_on_cpu ? std::optional<c10::Device>(c10::kCPU) : std::nullopt;
}

bool is_on_cpu(ServerDevice device, size_t towers) {
  if (device == ServerDevice::kDefault) return towers > kMostTowersOfGpuServer;
  return device == ServerDevice::kCpu;
}

DataParallel shared_variables(const Devices& devices, ParallelMode mode, bool average,
                              bool is_server_on_cpu) {
  return {.devices = devices,
          .mode = mode,
          .average = average,
          .variable_device = server(is_server_on_cpu)};
}

}  // namespace

SyncMultiGPUTrainerReplicated::SyncMultiGPUTrainerReplicated(Devices devices,
                                                             ReplicatedOptions options)
    : SingleCostTrainer(DataParallel{.devices = std::move(devices),
                                     .average = options.average,
                                     .sync_every_epoch = options.sync_every_epoch},
                        options.graph) {}

SyncMultiGPUTrainerParameterServer::SyncMultiGPUTrainerParameterServer(
    Devices devices, ParameterServerOptions options)
    : SingleCostTrainer(shared_variables(devices, ParallelMode::kParameterServer, true,
                                         is_on_cpu(options.ps_device, devices.size())),
                        options.graph) {}

SyncMultiGPUTrainer::SyncMultiGPUTrainer(Devices devices, GraphOptions graph)
    : SingleCostTrainer(shared_variables(devices, ParallelMode::kParameterServer, true,
                                         /*is_server_on_cpu=*/true),
                        graph) {}

AsyncMultiGPUTrainer::AsyncMultiGPUTrainer(Devices devices, AsyncOptions options)
    : SingleCostTrainer(shared_variables(devices, ParallelMode::kAsync, options.scale_gradient,
                                         devices.size() > kMostAsyncTowersOfGpuServer),
                        options.graph) {}

}  // namespace tensorpack
