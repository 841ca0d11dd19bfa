// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/tensor_table.h"

#include <fmt/format.h>

namespace tensorpack::cuda {
namespace {

constexpr int64_t kSmallChunk = 1024, kLargeChunk = 4096;
constexpr int64_t kManyElements = int64_t{1} << 22;

constexpr const char* kTable = R"cuda(
struct Table {
  void* data[kLists][kTensors];
  long long elements[kTensors];
  int first_block[kTensors];
  int tensors;
};
// The elements of one tensor that a block works on.
struct Part {
  int tensor;
  long long begin, end;
};
__device__ __forceinline__ Part part_of_block(const Table& table) {
  int low = 0, high = table.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (table.first_block[middle] <= (int)blockIdx.x) low = middle; else high = middle;
  }
  const long long begin = (long long)((int)blockIdx.x - table.first_block[low]) * kChunk;
  return {low, begin, min(begin + kChunk, table.elements[low])};
}
)cuda";

}  // namespace

int64_t chunk_of(const std::vector<at::Tensor>& tensors) {
  int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  return elements > kManyElements ? kLargeChunk : kSmallChunk;
}

std::string tensor_table(size_t lists, size_t tensors, int64_t chunk) {
  return fmt::format(
             "constexpr int kLists = {}, kTensors = {}, kThreads = {};\n"
             "constexpr long long kChunk = {};\n",
             lists, tensors, kTableThreads, chunk) +
         kTable;
}

}  // namespace tensorpack::cuda
