// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/jit.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorpack/cuda/driver.h"
#include "tensorpack/cuda/kernel_cache.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/thread.h"
#include "tensorpack/utils/worker_team.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kWhere = "fused kernels";
// Numbers of cuda.h.
constexpr int kMultiprocessorCount = 16;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kMaxDynamicSharedBytes = 8;
// Without asking, a kernel gets no more.
constexpr unsigned kSharedBytesForAll = 48 << 10;

void check_driver(int result, const char* what) {
  if (result == 0) return;
  const char* text = nullptr;
  driver().error_text(result, &text);
  throw make_error(kWhere, "the CUDA driver cannot {}: {}. Switch fusion off if this persists.",
                   what, text == nullptr ? "unknown error" : text);
}

void check_nvrtc(int result, const char* what) {
  TP_CHECK(result == 0, kWhere, "NVRTC cannot {}: {}. Switch fusion off if this persists.", what,
           nvrtc().error_text(result));
}

int current_device() {
  int device = 0;
  check_driver(driver().current_device(&device), "tell the current device");
  return device;
}

int attribute_of(int device, int attribute) {
  int value = 0;
  check_driver(driver().device_attribute(&value, attribute, device), "describe the device");
  return value;
}

std::string architecture_of(int device) {
  return fmt::format("sm_{}{}", attribute_of(device, kComputeCapabilityMajor),
                     attribute_of(device, kComputeCapabilityMinor));
}

// One compilation in progress.
class Compilation {
 public:
  explicit Compilation(const KernelSource& kernel) {
    check_nvrtc(nvrtc().create(&program_, kernel.text.c_str(), (kernel.name + ".cu").c_str(), 0,
                               nullptr, nullptr),
                "read a kernel");
  }
  ~Compilation() { nvrtc().destroy(&program_); }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  std::string cubin(const std::string& architecture) {
    const std::string option = "--gpu-architecture=" + architecture;
    const std::vector<const char*> options = {option.c_str(), "--std=c++17"};
    const int result = nvrtc().compile(program_, static_cast<int>(options.size()), options.data());
    TP_CHECK(result == 0, kWhere, "a kernel does not compile: {}\n{}", nvrtc().error_text(result),
             log());
    size_t size = 0;
    check_nvrtc(nvrtc().cubin_size(program_, &size), "give a compiled kernel");
    std::string bytes(size, '\0');
    check_nvrtc(nvrtc().cubin(program_, bytes.data()), "give a compiled kernel");
    return bytes;
  }

 private:
  std::string log() {
    size_t size = 0;
    nvrtc().log_size(program_, &size);
    std::string text(size, '\0');
    if (size > 0) nvrtc().log(program_, text.data());
    return text;
  }

  void* program_ = nullptr;
};

// All kernels of the process. Modules stay loaded: captured graphs may launch them at any time.
class Kernels {
 public:
  void* function_of(const KernelSource& kernel, unsigned shared_bytes) {
    const std::lock_guard lock(mutex_);
    Loaded& loaded = loaded_[{current_device(), kernel.text}];
    // Trying again would take as long, and fail again.
    if (!loaded.failure.empty()) throw Error(loaded.failure);
    if (loaded.function == nullptr) {
      load(kernel, loaded, [&] { return binary_of(kernel, architecture_of(current_device())); });
    }
    if (shared_bytes > std::max(loaded.shared_bytes, kSharedBytesForAll)) {
      check_driver(driver().set_attribute(loaded.function, kMaxDynamicSharedBytes,
                                          static_cast<int>(shared_bytes)),
                   "give a kernel so much shared memory");
      loaded.shared_bytes = shared_bytes;
    }
    return loaded.function;
  }

  // Compiling takes no lock: several at a time.
  void prepare_all(const std::vector<KernelSource>& kernels) {
    const int device = current_device();
    const std::string architecture = architecture_of(device);
    const std::vector<const KernelSource*> missing = not_loaded(device, kernels);
    if (missing.empty()) return;
    std::vector<std::string> binaries(missing.size());
    std::atomic<size_t> next = 0;
    WorkerTeam team("compile", std::min(static_cast<size_t>(affinity_cores()), missing.size()));
    team.run([&](size_t) {
      for (size_t i = next++; i < missing.size(); i = next++) {
        try {
          binaries[i] = binary_of(*missing[i], architecture);
        } catch (const Error&) {  // again, and told, when it is launched
        }
      }
    });
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < missing.size(); ++i) {
      if (binaries[i].empty()) continue;
      Loaded& loaded = loaded_[{device, missing[i]->text}];
      if (loaded.function == nullptr) load(*missing[i], loaded, [&] { return binaries[i]; });
    }
  }

  int compiled() const { return compiled_; }

 private:
  struct Loaded {
    void* function = nullptr;
    std::string failure = {};
    unsigned shared_bytes = 0;
  };

  // Each once.
  std::vector<const KernelSource*> not_loaded(int device,
                                              const std::vector<KernelSource>& kernels) const {
    const std::lock_guard lock(mutex_);
    std::map<std::string_view, const KernelSource*> found;
    for (const KernelSource& kernel : kernels) {
      if (!loaded_.contains({device, kernel.text})) found.emplace(kernel.text, &kernel);
    }
    std::vector<const KernelSource*> missing;
    for (const auto& [text, kernel] : found) missing.push_back(kernel);
    return missing;
  }

  template <typename Binary>
  void load(const KernelSource& kernel, Loaded& loaded, Binary get_binary) {
    try {
      const std::string binary = get_binary();
      void* module = nullptr;
      check_driver(driver().load(&module, binary.data()), "load a kernel");
      check_driver(driver().function(&loaded.function, module, kernel.name.c_str()),
                   "find a kernel");
    } catch (const Error& error) {
      loaded.failure = error.what();
      throw;
    }
  }

  std::string binary_of(const KernelSource& kernel, const std::string& architecture) {
    int major = 0, minor = 0;
    check_nvrtc(nvrtc().version(&major, &minor), "tell its version");
    const std::string key =
        fmt::format("{} nvrtc {}.{}\n{}", architecture, major, minor, kernel.text);
    if (const auto found = cache_.find(key)) return *found;
    std::string binary = Compilation(kernel).cubin(architecture);
    ++compiled_;
    cache_.store(key, binary);
    return binary;
  }

  mutable std::mutex mutex_;
  KernelCache cache_{default_kernel_cache()};
  std::map<std::pair<int, std::string>, Loaded> loaded_;
  std::atomic<int> compiled_ = 0;
};

Kernels& kernels() {
  static Kernels all;
  return all;
}

}  // namespace

const std::optional<std::string>& obstacle_to_compiling() {
  static const std::optional<std::string> obstacle = []() -> std::optional<std::string> {
    try {
      nvrtc();
      driver();
      return std::nullopt;
    } catch (const Error& error) {
      return error.what();
    }
  }();
  return obstacle;
}

int multiprocessor_count() { return attribute_of(current_device(), kMultiprocessorCount); }

void prepare(const KernelSource& kernel) { kernels().function_of(kernel, 0); }

void prepare_all(const std::vector<KernelSource>& all) { kernels().prepare_all(all); }

void* function_of(const KernelSource& kernel) { return kernels().function_of(kernel, 0); }

void launch(const KernelSource& kernel, const LaunchShape& shape, void** arguments, void* stream) {
  void* function = kernels().function_of(kernel, shape.shared_bytes);
  check_driver(driver().launch(function, shape.grid[0], shape.grid[1], 1, shape.block[0],
                               shape.block[1], 1, shape.shared_bytes, stream, arguments, nullptr),
               "launch a kernel");
}

int compiled_kernels() { return kernels().compiled(); }

}  // namespace tensorpack::cuda
