// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/compile_ahead.h"

#include <ATen/ATen.h>

#include "tensorpack/cuda/kernels/device_launcher.h"
#include "tensorpack/cuda/kernels/kernel_list.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::cuda {

std::vector<KernelSource> kernels_of(const Trace& trace, int multiprocessors) {
  const Unwatched unwatched;
  const KernelList list(multiprocessors);
  for (const Node& node : trace.nodes) {
    if (!launches_kernels(node.op)) continue;
    std::vector<c10::IValue> slots(trace.values.size());
    node.for_each_argument([&](ValueId id) {
      const Value& value = trace.values[id];
      slots[id] = at::empty_strided(value.sizes, value.strides, value.options);
    });
    run_node(node, slots);
  }
  return list.kernels();
}

std::future<void> compile_ahead(const Trace& trace, std::function<void()> use_device) {
  const Launcher* device = device_launcher();
  if (device == nullptr) return {};
  const auto leave_it = [](const std::exception& error) {
    logging::debug("Kernels are compiled one by one: {}", error.what());
  };
  try {
    return std::async(
        std::launch::async, [=, kernels = kernels_of(trace, device->multiprocessors())] {
          const Timer timer;
          try {
            use_device();
            prepare_all(kernels);
          } catch (const std::exception& error) {
            leave_it(error);
          }
          logging::debug("Compiling and loading kernels took {:.3f} s.", timer.seconds());
        });
  } catch (const std::exception& error) {
    leave_it(error);
    return {};
  }
}

}  // namespace tensorpack::cuda
