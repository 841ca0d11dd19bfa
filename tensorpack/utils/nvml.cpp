// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/nvml.h"

#include <dlfcn.h>

#include <sstream>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

// As nvml.h has them; every version of the library has these.
struct Nvml::Functions {
  struct Utilization {
    unsigned gpu;
    unsigned memory;
  };

  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_handle)(unsigned, void**) = nullptr;
  int (*utilization)(void*, Utilization*) = nullptr;

  template <typename Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

  bool open() {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    return library != nullptr && find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
           find(device_count, "nvmlDeviceGetCount_v2") &&
           find(device_handle, "nvmlDeviceGetHandleByIndex_v2") &&
           find(utilization, "nvmlDeviceGetUtilizationRates");
  }

  ~Functions() {
    if (library != nullptr) dlclose(library);
  }
};

namespace {

// The numbers that the driver has for the devices that this process sees.
std::vector<unsigned> visible_devices(unsigned count) {
  std::vector<unsigned> all(count);
  for (unsigned i = 0; i < count; ++i) all[i] = i;
  const auto visible = env("CUDA_VISIBLE_DEVICES");
  if (!visible) return all;
  std::vector<unsigned> devices;
  std::istringstream parts(*visible);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto number = parse_integer(part);
    if (!number || *number < 0 || *number >= count) return all;  // UUIDs, or a mistake
    devices.push_back(static_cast<unsigned>(*number));
  }
  return devices;
}

}  // namespace

std::unique_ptr<Nvml> Nvml::open() {
  auto functions = std::make_unique<Functions>();
  if (!functions->open() || functions->init() != 0) return nullptr;
  std::unique_ptr<Nvml> nvml(new Nvml(std::move(functions)));
  if (nvml->handles_.empty()) return nullptr;
  return nvml;
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {
  unsigned count = 0;
  if (functions_->device_count(&count) != 0) return;
  for (const unsigned device : visible_devices(count)) {
    void* handle = nullptr;
    if (functions_->device_handle(device, &handle) == 0) handles_.push_back(handle);
  }
}

Nvml::~Nvml() { functions_->shutdown(); }

void Nvml::check(int status, const char* what) const {
  TP_CHECK(status == 0, "NVML", "{} failed with status {}.", what, status);
}

double Nvml::utilization(int device) const {
  Functions::Utilization rates{};
  check(functions_->utilization(handles_.at(static_cast<size_t>(device)), &rates),
        "nvmlDeviceGetUtilizationRates");
  return rates.gpu;
}

}  // namespace tensorpack
