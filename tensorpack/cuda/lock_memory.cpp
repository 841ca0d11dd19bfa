// SPDX-License-Identifier: Apache-2.0
// Page-locked memory of huge pages. Most of the time that locking takes goes into making pages
// ready, one by one: of 4 KiB, which CUDA's own function takes, 1.5 GiB take four times as long.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <sys/mman.h>

#include <cstdint>
#include <memory>

#include "tensorpack/graph/locked_memory.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{1} << 21;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// While it lives, this thread may do what a capture that goes on does not allow otherwise.
class [[nodiscard]] AlsoWhileCapturing {
 public:
  AlsoWhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AlsoWhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AlsoWhileCapturing(const AlsoWhileCapturing&) = delete;
  AlsoWhileCapturing& operator=(const AlsoWhileCapturing&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// Memory of the process, beginning with a huge page.
class Mapping {
 public:
  explicit Mapping(size_t bytes) : bytes_(round_up(bytes, kHugePage)) {
    const size_t taken = bytes_ + kHugePage;
    void* const begin =
        mmap(nullptr, taken, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return;
    const auto address = reinterpret_cast<uintptr_t>(begin);
    const size_t before = round_up(address, kHugePage) - address;
    data_ = static_cast<char*>(begin) + before;
    if (before > 0) munmap(begin, before);
    munmap(data_ + bytes_, taken - before - bytes_);
    madvise(data_, bytes_, MADV_HUGEPAGE);  // where there are none, pages are small
    madvise(data_, bytes_, MADV_DONTFORK);  // a child's copy would take the device's away
  }
  ~Mapping() {
    if (data_ == nullptr) return;
    if (is_locked_) {
      const AlsoWhileCapturing scope;
      cudaHostUnregister(data_);
    }
    munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  char* data() const { return data_; }

  cudaError_t lock() {
    if (data_ == nullptr) return cudaErrorMemoryAllocation;
    for (size_t i = 0; i < bytes_; i += kPage) static_cast<volatile char*>(data_)[i] = 0;
    // Any device that is used already: no memory of another one is taken for it.
    c10::cuda::OptionalCUDAGuard on_device;
    if (const auto used = c10::cuda::getDeviceIndexWithPrimaryContext()) on_device.set_index(*used);
    const AlsoWhileCapturing scope;
    const cudaError_t result = cudaHostRegister(data_, bytes_, cudaHostRegisterPortable);
    is_locked_ = result == cudaSuccess;
    return result;
  }

 private:
  size_t bytes_;
  char* data_ = nullptr;
  bool is_locked_ = false;
};

}  // namespace

at::Tensor lock_memory(int64_t bytes) {
  const Timer timer;
  const auto mapping = std::make_shared<Mapping>(static_cast<size_t>(bytes));
  const cudaError_t result = mapping->lock();
  if (result != cudaSuccess) {
    cudaGetLastError();  // it was told of here
    logging::debug("No page-locked memory: {}.", cudaGetErrorString(result));
    return {};
  }
  logging::debug("Locking {} of memory took {:.3f} s.",
                 humanize_bytes(static_cast<std::uint64_t>(bytes)), timer.seconds());
  return at::from_blob(
      mapping->data(), {bytes}, [mapping](void*) {}, at::kByte);
}

}  // namespace tensorpack
