// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/kernel_list.h"

#include "tensorpack/cuda/kernels/device_launcher.h"

namespace tensorpack::cuda {
namespace {

thread_local const KernelList* open_list = nullptr;

}  // namespace

KernelList::KernelList(int multiprocessors) : multiprocessors_(multiprocessors) {
  open_list = this;
}

KernelList::~KernelList() { open_list = nullptr; }

const Launcher* launcher_for(const at::Tensor& tensor) {
  if (open_list != nullptr) return open_list;
  return tensor.is_cuda() ? device_launcher() : nullptr;
}

}  // namespace tensorpack::cuda
