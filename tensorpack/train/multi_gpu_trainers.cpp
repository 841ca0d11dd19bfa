// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/multi_gpu_trainers.h"

#include <algorithm>

namespace tensorpack {
namespace {

// The servers that Tensorpack chooses: beyond this many towers the traffic of one GPU is too much.
constexpr size_t kMostTowersOfGpuServer = 2;
constexpr size_t kMostAsyncTowersOfGpuServer = 3;

std::vector<c10::Device> servers(bool is_on_cpu, const std::vector<c10::Device>& towers) {
  if (is_on_cpu) return {c10::Device(c10::kCPU)};
  std::vector<c10::Device> devices;
  for (const c10::Device& device : towers) {
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) {
      devices.push_back(device);
    }
  }
  return devices;
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
          .variable_devices = servers(is_server_on_cpu, devices.list())};
}

}  // namespace

SyncMultiGPUTrainerReplicated::SyncMultiGPUTrainerReplicated(Devices devices,
                                                             ReplicatedOptions options)
    : SingleCostTrainer(DataParallel{.devices = std::move(devices),
                                     .average = options.average,
                                     .sync_every_epoch = options.sync_every_epoch,
                                     .check_equal = options.check_equal},
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
