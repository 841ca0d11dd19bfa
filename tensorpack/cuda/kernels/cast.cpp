// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/cast.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/tensor_table.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack::cuda {
namespace {

constexpr size_t kTensorsOfCasts = 144;  // as many as parameters of a kernel have room for

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

// Calls see(first, count) for the tensors of each result.
template <typename See>
void for_each_result(const CastArguments& arguments, See see) {
  const size_t results =
      arguments.parts.empty() ? arguments.tensors.size() : arguments.parts.size();
  size_t first = 0;
  for (size_t i = 0; i < results; ++i) {
    const auto count = arguments.parts.empty() ? 1 : static_cast<size_t>(arguments.parts[i]);
    see(first, count);
    first += count;
  }
  TP_ASSERT(first == arguments.tensors.size());
}

struct Targets {
  std::vector<at::Tensor> results = {};
  std::vector<at::Tensor> parts = {};  // of the results, where the tensors go
};

Targets make_targets(const CastArguments& arguments) {
  Targets targets;
  for_each_result(arguments, [&](size_t first, size_t count) {
    const at::Tensor& tensor = arguments.tensors[first];
    const auto options = tensor.options().dtype(arguments.type);
    if (count == 1) {
      targets.results.push_back(at::empty_strided(tensor.sizes(), tensor.strides(), options));
      targets.parts.push_back(targets.results.back());
      return;
    }
    std::vector<int64_t> sizes = tensor.sizes().vec();
    for (size_t i = first + 1; i < first + count; ++i) sizes[0] += arguments.tensors[i].size(0);
    targets.results.push_back(at::empty(sizes, options));
    int64_t row = 0;
    for (size_t i = first; i < first + count; ++i) {
      const int64_t rows = arguments.tensors[i].size(0);
      targets.parts.push_back(targets.results.back().narrow(0, row, rows));
      row += rows;
    }
  });
  return targets;
}

}  // namespace

bool fits_cast(const CastArguments& arguments) {
  if (arguments.tensors.empty()) return false;
  const at::Tensor& one = arguments.tensors[0];
  bool fits = has_kernel_type(arguments.type) && has_kernel_type(one.scalar_type());
  for_each_result(arguments, [&](size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
      const at::Tensor& tensor = arguments.tensors[i];
      fits &= tensor.scalar_type() == one.scalar_type() && tensor.device() == one.device() &&
              (count == 1 ? tensor.is_non_overlapping_and_dense() : tensor.is_contiguous());
    }
  });
  return fits;
}

std::vector<at::Tensor> cast(const CastArguments& arguments, const Launcher& launcher) {
  Targets targets = make_targets(arguments);
  const TensorLists<2> lists = {arguments.tensors, std::move(targets.parts)};
  const c10::ScalarType source = arguments.tensors[0].scalar_type();
  const size_t widest = std::max(c10::elementSize(source), c10::elementSize(arguments.type));
  const int64_t chunk = chunk_of(lists[0]);
  const KernelSource kernel{
      "cast",
      prelude() +
          fmt::format("using S = {};\nusing R = {};\nconstexpr int W = {};\n", kernel_type(source),
                      kernel_type(arguments.type), kLargestLoad / widest) +
          tensor_table(lists.size(), kTensorsOfCasts, chunk) + kCast};
  for_each_table<kTensorsOfCasts>(lists, chunk, [&](const auto& table, const LaunchShape& shape) {
    launcher(kernel, shape, table);
  });
  return std::move(targets.results);
}

std::vector<at::Tensor> cast_unfused(const CastArguments& arguments) {
  Targets targets = make_targets(arguments);
  copy_together(targets.parts, arguments.tensors);
  return std::move(targets.results);
}

}  // namespace tensorpack::cuda
