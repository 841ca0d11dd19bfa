// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/cast.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/tensor_table.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack::cuda {
namespace {

constexpr size_t kTensorsOfCasts = 128;
constexpr size_t kVectorBytes = 16;

// A thread loads all its vectors before it stores the first. Where a tensor lies decides in the
// kernel: one that is not aligned does not slow down the others.
constexpr const char* kCast = R"cuda(
template <int W>
__device__ __forceinline__ void cast_elements(const S* from, R* to, int elements) {
  constexpr int kStep = W * kThreads, U = (kChunk + kStep - 1) / kStep;
  const int first = threadIdx.x * W;
  Vector<S, W> v[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * kStep + W <= elements) v[u] = load<W>(from + first + u * kStep);
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    if (first + u * kStep + W > elements) continue;
    float f[W];
    unpack<W>(v[u], f);
    store<W>(to + first + u * kStep, f);
  }
  const int left_over = elements - elements % W + threadIdx.x;
  if (left_over < elements) from_float(to_float(from[left_over]), to[left_over]);
}

extern "C" __global__ void __launch_bounds__(kThreads)
cast(Table table) {
  const Part part = part_of_block(table);
  const S* from = (const S*)table.data[0][part.tensor] + part.begin;
  R* to = (R*)table.data[1][part.tensor] + part.begin;
  const int elements = (int)(part.end - part.begin);
  const bool is_aligned = (unsigned long long)from % sizeof(Vector<S, W>) == 0 &&
                          (unsigned long long)to % sizeof(Vector<R, W>) == 0;
  if (is_aligned) {
    cast_elements<W>(from, to, elements);
  } else {
    cast_elements<1>(from, to, elements);
  }
}
)cuda";

std::vector<at::Tensor> empty_results(at::TensorList tensors, c10::ScalarType type) {
  std::vector<at::Tensor> results;
  results.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    results.push_back(
        at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().dtype(type)));
  }
  return results;
}

}  // namespace

bool fits_cast(at::TensorList tensors, c10::ScalarType type) {
  return !tensors.empty() && has_kernel_type(type) && has_kernel_type(tensors[0].scalar_type()) &&
         std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
           return tensor.scalar_type() == tensors[0].scalar_type() &&
                  tensor.device() == tensors[0].device() && tensor.is_non_overlapping_and_dense();
         });
}

std::vector<at::Tensor> cast(at::TensorList tensors, c10::ScalarType type,
                             const Launcher& launcher) {
  const TensorLists<2> lists = {tensors.vec(), empty_results(tensors, type)};
  const c10::ScalarType source = tensors[0].scalar_type();
  const int64_t chunk = chunk_of(lists[0]);
  const KernelSource kernel{
      "cast",
      prelude() +
          fmt::format("using S = {};\nusing R = {};\nconstexpr int W = {};\n", kernel_type(source),
                      kernel_type(type),
                      kVectorBytes / std::max(c10::elementSize(source), c10::elementSize(type))) +
          tensor_table(lists.size(), kTensorsOfCasts, chunk) + kCast};
  for_each_table<kTensorsOfCasts>(lists, chunk, [&](const auto& table, const LaunchShape& shape) {
    launcher(kernel, shape, table);
  });
  return lists[1];
}

std::vector<at::Tensor> cast_unfused(at::TensorList tensors, c10::ScalarType type) {
  const std::vector<at::Tensor> results = empty_results(tensors, type);
  copy_together(results, tensors);
  return results;
}

}  // namespace tensorpack::cuda
