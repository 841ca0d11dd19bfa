// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string_view>
#include <vector>

namespace tensorpack {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestBlock = 256;
constexpr int kStepsPerDoubling = 8;  // at most an eighth of a block is wasted
constexpr int64_t kLargeCache = int64_t{1} << 30;

// Stands in front of every block; as long as the alignment.
struct alignas(kAlignment) Header {
  size_t size_class;
  size_t block_bytes;
};

struct SizeClass {
  size_t index;
  size_t bytes;
};

SizeClass class_of(size_t bytes) {
  bytes = std::max(bytes, kSmallestBlock);
  const int exponent = std::bit_width(bytes) - 1;
  const size_t base = size_t{1} << exponent;
  const size_t step = base / kStepsPerDoubling;
  const size_t steps = (bytes - base + step - 1) / step;
  return {static_cast<size_t>(exponent) * kStepsPerDoubling + steps, base + steps * step};
}

class BlockCache {
 public:
  void* take(size_t bytes) {
    const SizeClass size_class = class_of(bytes + sizeof(Header));
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<void*>& free_blocks = free_[size_class.index];
    void* block = nullptr;
    if (!free_blocks.empty()) {
      block = free_blocks.back();
      free_blocks.pop_back();
      stats_.bytes_cached -= static_cast<int64_t>(size_class.bytes);
    } else {
      // Shapes that come once would pile up: give back rather than hold more than is in use.
      if (stats_.bytes_cached > std::max(kLargeCache, stats_.bytes_in_use)) release_all();
      if (posix_memalign(&block, kAlignment, size_class.bytes) != 0) throw std::bad_alloc();
    }
    stats_.bytes_in_use += static_cast<int64_t>(size_class.bytes);
    stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
    new (block) Header{size_class.index, size_class.bytes};
    return static_cast<char*>(block) + sizeof(Header);
  }

  void give(void* data) {
    void* block = static_cast<char*>(data) - sizeof(Header);
    const Header header = *static_cast<Header*>(block);
    std::lock_guard<std::mutex> lock(mutex_);
    free_[header.size_class].push_back(block);
    stats_.bytes_in_use -= static_cast<int64_t>(header.block_bytes);
    stats_.bytes_cached += static_cast<int64_t>(header.block_bytes);
  }

  void clear() {
    std::lock_guard<std::mutex> lock(mutex_);
    release_all();
  }

  CpuMemoryStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    return stats_;
  }

  void reset_peak() {
    std::lock_guard<std::mutex> lock(mutex_);
    stats_.peak_bytes_in_use = stats_.bytes_in_use;
  }

 private:
  void release_all() {
    for (std::vector<void*>& blocks : free_) {
      for (void* block : blocks) std::free(block);
      blocks.clear();
    }
    stats_.bytes_cached = 0;
  }

  std::mutex mutex_;
  std::array<std::vector<void*>, 65 * kStepsPerDoubling> free_;
  CpuMemoryStats stats_;
};

// Never destroyed: tensors with static lifetime give their memory back after main().
BlockCache& cache() {
  static auto* const instance = new BlockCache;
  return *instance;
}

void give_back(void* data) {
  if (data != nullptr) cache().give(data);
}

// libtorch 1.13 declares allocate() const and later versions do not, nor is copy_data() in 1.13:
// each member here overrides what the version at hand has, hence no `override`.
class CachingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const { return make(bytes); }
  c10::DataPtr allocate(size_t bytes) { return make(bytes); }
  c10::DeleterFnPtr raw_deleter() const { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

 private:
  // oneDNN allocates through raw_allocate(), which needs the context to be the data itself.
  static c10::DataPtr make(size_t bytes) {
    void* data = bytes == 0 ? nullptr : cache().take(bytes);
    return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
};

bool is_wanted() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;  // a cache would hide use after free
#else
  const char* choice = std::getenv("TENSORPACK_CPU_ALLOCATOR");
  return choice == nullptr || std::string_view(choice) != "default";
#endif
}

}  // namespace

void detail::install_caching_cpu_allocator() {
  static std::once_flag once;
  std::call_once(once, [] {
    if (!is_wanted()) return;
    static auto* const allocator = new CachingAllocator;
    c10::SetCPUAllocator(allocator, /*priority=*/250);
  });
}

CpuMemoryStats cpu_memory_stats() { return cache().stats(); }

void reset_peak_cpu_memory() { cache().reset_peak(); }

void empty_cpu_cache() { cache().clear(); }

}  // namespace tensorpack
