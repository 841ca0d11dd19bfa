// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/driver.h"

#include <vector>

#include "tensorpack/cuda/shared_library.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kWhere = "fused kernels";

std::vector<std::string> places_of_nvrtc() {
  std::vector<std::string> places = places_of("nvrtc");
  // A library of libtorch's that depends on the right NVRTC, and knows where that is.
  places.push_back(beside_libtorch("libcaffe2_nvrtc.so"));
  return places;
}

Nvrtc open_nvrtc() {
  const SharedLibrary library(kWhere, "NVRTC", places_of_nvrtc());
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
  const SharedLibrary library(kWhere, "the CUDA driver", {"libcuda.so.1"});
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
