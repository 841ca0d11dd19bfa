// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/device_launcher.h"

#include <c10/cuda/CUDAStream.h>

#include <optional>
#include <string>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::cuda {
namespace {

class DeviceLauncher final : public Launcher {
 public:
  int multiprocessors() const override { return multiprocessor_count(); }
  void prepare(const KernelSource& kernel) const override { cuda::prepare(kernel); }
  void launch(const KernelSource& kernel, const LaunchShape& shape,
              void** arguments) const override {
    cuda::launch(kernel, shape, arguments, c10::cuda::getCurrentCUDAStream().stream());
  }
};

// NVRTC may be there and not know the device.
std::optional<std::string> obstacle_on_this_device() {
  if (const auto& obstacle = obstacle_to_compiling()) return obstacle;
  try {
    prepare({"nothing", "extern \"C\" __global__ void nothing() {}\n"});
    return std::nullopt;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

const Launcher* device_launcher() {
  static const DeviceLauncher launcher;
  if (const auto obstacle = obstacle_on_this_device()) {
    logging::warning_once("Operators are not fused: {}", *obstacle);
    return nullptr;
  }
  return &launcher;
}

}  // namespace tensorpack::cuda
