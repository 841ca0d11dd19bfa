// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/driver.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kWhere = "fused kernels";

// Where libtorch lies: its wheels bring NVRTC, in folders the loader does not search.
std::filesystem::path libtorch_folder() {
  Dl_info info = {};
  const auto* symbol = reinterpret_cast<const void*>(&c10::Dispatcher::realSingleton);
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

std::vector<std::string> places_of_nvrtc() {
  std::vector<std::string> places = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
  const std::filesystem::path torch = libtorch_folder();
  if (torch.empty()) return places;
  // It depends on the right NVRTC, and knows where that is.
  places.push_back(torch / "libcaffe2_nvrtc.so");
  std::error_code ignored;
  const std::filesystem::path wheels = torch / "../../nvidia";
  for (const auto& wheel : std::filesystem::directory_iterator(wheels, ignored)) {
    for (const auto& file : std::filesystem::directory_iterator(wheel.path() / "lib", ignored)) {
      if (file.path().filename().string().starts_with("libnvrtc.so")) places.push_back(file.path());
    }
  }
  return places;
}

class Library {
 public:
  Library(std::string name, const std::vector<std::string>& places) : name_(std::move(name)) {
    for (const std::string& place : places) {
      handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
    }
    const char* reason = dlerror();
    throw make_error(kWhere,
                     "{} was not found ({}). Install it, or add its folder to "
                     "LD_LIBRARY_PATH.",
                     name_, reason == nullptr ? "no reason given" : reason);
  }

  template <typename Function>
  void find(Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    TP_CHECK(function != nullptr, kWhere, "{} has no function {}. Install a newer one.", name_,
             symbol);
  }

 private:
  std::string name_;
  void* handle_ = nullptr;
};

Nvrtc open_nvrtc() {
  const Library library("NVRTC", places_of_nvrtc());
  Nvrtc nvrtc;
  library.find(nvrtc.version, "nvrtcVersion");
  library.find(nvrtc.create, "nvrtcCreateProgram");
  library.find(nvrtc.compile, "nvrtcCompileProgram");
  library.find(nvrtc.destroy, "nvrtcDestroyProgram");
  library.find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  library.find(nvrtc.log, "nvrtcGetProgramLog");
  library.find(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  library.find(nvrtc.cubin, "nvrtcGetCUBIN");
  library.find(nvrtc.error_text, "nvrtcGetErrorString");
  return nvrtc;
}

Driver open_driver() {
  const Library library("the CUDA driver", {"libcuda.so.1"});
  Driver driver;
  library.find(driver.current_device, "cuCtxGetDevice");
  library.find(driver.device_attribute, "cuDeviceGetAttribute");
  library.find(driver.load, "cuModuleLoadData");
  library.find(driver.function, "cuModuleGetFunction");
  library.find(driver.set_attribute, "cuFuncSetAttribute");
  library.find(driver.launch, "cuLaunchKernel");
  library.find(driver.error_text, "cuGetErrorString");
  library.find(driver.graph_nodes, "cuGraphGetNodes");
  library.find(driver.node_type, "cuGraphNodeGetType");
  library.find(driver.nodes_before, "cuGraphNodeGetDependencies");
  library.find(driver.nodes_after, "cuGraphNodeGetDependentNodes");
  library.find(driver.memset_parameters, "cuGraphMemsetNodeGetParams");
  library.find(driver.add_kernel_node, "cuGraphAddKernelNode");
  library.find(driver.add_dependencies, "cuGraphAddDependencies");
  library.find(driver.destroy_node, "cuGraphDestroyNode");
  return driver;
}

}  // namespace

const Nvrtc& nvrtc() {
  static const Nvrtc opened = open_nvrtc();
  return opened;
}

const Driver& driver() {
  static const Driver opened = open_driver();
  return opened;
}

}  // namespace tensorpack::cuda
