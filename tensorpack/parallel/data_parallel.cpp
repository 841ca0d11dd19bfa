// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/data_parallel.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tensorpack/parallel/rank_state.h"
#include "tensorpack/parallel/tower_exchange.h"
#include "tensorpack/utils/device.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/seed.h"

namespace tensorpack {
namespace {

c10::Device gpu(int index) {
  TP_CHECK(index >= 0, "devices", "{} is not the number of a GPU. Count from 0.", index);
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(index));
}

bool has_cuda(const DataParallel& parallel) {
  const std::vector<c10::Device>& devices = parallel.devices.list();
  return std::any_of(devices.begin(), devices.end(),
                     [](const c10::Device& device) { return device.is_cuda(); });
}

// What NCCL asks for.
bool has_gpus_of_their_own(const std::vector<c10::Device>& devices) {
  std::set<c10::DeviceIndex> gpus;
  for (const c10::Device& device : devices) {
    if (device.is_cuda()) gpus.insert(device.index());
  }
  return gpus.size() == devices.size();
}

// To begin an exchange takes as long on a GPU as to send many times what the CPU sends in that
// time.
constexpr int64_t kBucketBytesOnCuda = 25 << 20;

int64_t bucket_bytes(const DataParallel& parallel) {
  return parallel.bucket_bytes.value_or(has_cuda(parallel) ? kBucketBytesOnCuda
                                                           : kDefaultBucketBytes);
}

}  // namespace

Devices::Devices(std::initializer_list<int> gpus) : Devices(Devices::gpus(gpus)) {}

Devices Devices::first(int count) {
  TP_CHECK(count > 0, "devices", "there must be at least one device, got {}.", count);
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return gpus(numbers);
}

Devices Devices::gpus(const std::vector<int>& numbers) {
  std::vector<c10::Device> devices;
  for (int number : numbers) devices.push_back(gpu(number));
  return devices;
}

Devices Devices::cpu(int towers) {
  TP_CHECK(towers > 0, "devices", "there must be at least one tower, got {}.", towers);
  return std::vector<c10::Device>(static_cast<size_t>(towers), c10::Device(c10::kCPU));
}

Devices Devices::visible() {
  std::vector<c10::Device> devices;
  for (int i = 0; i < count_devices(c10::kCUDA); ++i) devices.push_back(gpu(i));
  return devices.empty() ? cpu(1) : Devices(std::move(devices));
}

void check(const DataParallel& parallel) {
  for (const c10::Device& device : parallel.devices.list()) check_device(device);
  for (const c10::Device& device : parallel.variable_devices) check_device(device);
  const bool has_processes = parallel.processes != nullptr && parallel.processes->size() > 1;
  TP_CHECK(parallel.variable_devices.empty() || parallel.mode != ParallelMode::kReplicated,
           "parallel",
           "every tower has its variables on its own device, and variable_devices has {}. Use "
           "ParallelMode::kParameterServer, or leave it empty.",
           parallel.variable_devices[0].str());
  TP_CHECK(!has_processes || parallel.mode != ParallelMode::kAsync, "parallel",
           "processes wait for each other, and the towers of this one do not. Use "
           "ParallelMode::kReplicated, or a single process.");
  TP_CHECK(!has_processes || !has_cuda(parallel) || parallel.devices.size() == 1, "parallel",
           "a process with {} towers on GPUs cannot train with others. Start one process for each "
           "GPU.",
           parallel.devices.size());
  TP_CHECK(parallel.bucket_bytes.value_or(1) > 0, "parallel",
           "bucket_bytes is {}. Pass a positive number.", *parallel.bucket_bytes);
}

GraphOptions with_devices(GraphOptions options, const DataParallel& parallel) {
  if (!parallel.devices.list().empty()) options.device = parallel.devices.list()[0];
  if (!parallel.variable_devices.empty()) options.variable_devices = parallel.variable_devices;
  if (parallel.processes) options.rank = parallel.processes->rank();
  const bool has_others = parallel.processes && parallel.processes->size() > 1;
  if (has_others) adopt_global_seed(seed_of_chief(*parallel.processes));
  return options;
}

TowerOptions tower_options(const DataParallel& parallel, int index) {
  const std::vector<c10::Device>& devices = parallel.devices.list();
  const bool is_single = parallel.devices.size() == 1;
  TowerOptions options{
      .name = is_single ? "" : "tower" + std::to_string(index),
      .index = index,
      .total = static_cast<int>(parallel.devices.size()),
      .exchanges = parallel.is_parallel(),
      .bucket_bytes = bucket_bytes(parallel),
  };
  if (!devices.empty()) options.device = devices[static_cast<size_t>(index)];
  if (is_single) return options;
  const bool is_first = index == 0;
  if (parallel.mode == ParallelMode::kReplicated) {
    if (!is_first) options.variable_prefix = options.name + "/";
    return options;
  }
  options.shares_variables = !is_first;
  options.updates = is_first || parallel.mode == ParallelMode::kAsync ? VariableUpdates::kShared
                                                                      : VariableUpdates::kNone;
  return options;
}

std::shared_ptr<ExchangeGroup> make_exchange(const DataParallel& parallel) {
  if (parallel.processes && parallel.processes->size() > 1) {
    return make_process_exchange({.processes = parallel.processes,
                                  .towers = parallel.devices.size(),
                                  .average = parallel.average,
                                  .compression = parallel.compression});
  }
  const TowerExchangeOptions options{.towers = parallel.devices.size(),
                                     .average = parallel.average};
  if (parallel.mode == ParallelMode::kAsync) return make_async_exchange(options);
  const std::vector<c10::Device>& devices = parallel.devices.list();
  if (has_gpus_of_their_own(devices)) return make_collective_exchange(devices, parallel.average);
  return has_cuda(parallel) ? make_stream_exchange(options) : make_shared_memory_exchange(options);
}

}  // namespace tensorpack
