// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/distributed_trainer.h"

namespace tensorpack {
namespace {

c10::Device device_of_process(const c10::Device& device, const LaunchEnvironment& environment) {
  if (!device.is_cuda() || device.has_index()) return device;
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(environment.local_rank));
}

}  // namespace

DataParallel distributed(DistributedOptions options) {
  const LaunchEnvironment environment =
      options.processes ? options.processes->environment() : detect_launch();
  if (options.devices.list().empty()) {
    options.devices = std::vector{device_of_process(options.graph.device, environment)};
  }
  if (options.processes && options.processes->has_left()) {
    options.processes = ProcessGroup::create(options.processes->options());
  }
  if (!options.processes) {
    options.processes = ProcessGroup::create({.environment = environment,
                                              .device = options.devices.list()[0],
                                              .timeout = options.timeout});
  }
  return {.devices = std::move(options.devices),
          .average = options.average,
          .processes = std::move(options.processes),
          .compression = options.compression,
          .bucket_bytes = options.bucket_bytes,
          .sync_every_epoch = options.broadcast_every_epoch,
          .check_equal = options.check_equal};
}

DistributedTrainer::DistributedTrainer(DistributedOptions options)
    : SingleCostTrainer(distributed(options), options.graph) {}

}  // namespace tensorpack
