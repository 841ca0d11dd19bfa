// SPDX-License-Identifier: Apache-2.0
// Note [Gradients of words]
// libtorch fills the gradient of all words with zeros and adds to the few that were there; where
// another gradient is added, all of it is read and written once more. Here the other gradient is
// read and the sum is written, once: a warp has a word, finds it among the sorted ones, and adds up
// the rows of its places. A word that is everywhere would keep one warp for long, so that 32 places
// that all have one word are summed before, by a warp each. The order of additions is that of the
// places in any case.
#include "tensorpack/cuda/kernels/embedding_gradient.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"

namespace tensorpack::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kThreads = 256;
constexpr int kWordsOfBlock = 32;
constexpr int kPlaces = 32;  // that are summed before
constexpr int64_t kMostWords = int64_t{1} << 30;
constexpr int64_t kMostFeatures = 2048;
constexpr int kWidth = 4;

constexpr const char* kRow = R"cuda(
constexpr int K = (D + 32 * W - 1) / (32 * W);  // vectors of a lane

// Adds what lane `lane` has of a row.
__device__ __forceinline__ void add_row(const float* __restrict__ row, int lane,
                                        float (&sum)[K * W]) {
  Vector<float, W> v[K];
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int c = (k * 32 + lane) * W;
    if (c < D) v[k] = load<W>(row + c);
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    if ((k * 32 + lane) * W >= D) continue;
#pragma unroll
    for (int i = 0; i < W; ++i) sum[k * W + i] += v[k].item[i];
  }
}
)cuda";

// A warp for each kPlaces places.
constexpr const char* kPieces = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
embedding_pieces(const float* __restrict__ grad, const int* __restrict__ words,
                 const long long* __restrict__ places, int count, float* __restrict__ pieces) {
  const int lane = threadIdx.x % 32;
  const int piece = blockIdx.x * (kThreads / 32) + threadIdx.x / 32, first = piece * kPlaces;
  if (first + kPlaces > count || words[first] != words[first + kPlaces - 1]) return;
  float sum[K * W] = {};
  for (int i = first; i < first + kPlaces; ++i) add_row(grad + places[i] * D, lane, sum);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int c = (k * 32 + lane) * W;
    float v[W];
#pragma unroll
    for (int i = 0; i < W; ++i) v[i] = sum[k * W + i];
    if (c < D) store<W>(pieces + (size_t)piece * D + c, v);
  }
}
)cuda";

constexpr const char* kGradient = R"cuda(
// The first place whose word is not less.
__device__ __forceinline__ int first_place(const int* __restrict__ words, int count, int word) {
  int low = 0, high = count;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (words[middle] < word) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

extern "C" __global__ void __launch_bounds__(kThreads)
embedding_gradient(const float* __restrict__ grad, const int* __restrict__ words,
                   const long long* __restrict__ places, int count,
                   const float* __restrict__ pieces, const O* __restrict__ other,
                   float* __restrict__ result, int vocabulary, int padding) {
  __shared__ int bounds[kWords + 1];
  const int lane = threadIdx.x % 32, begin = blockIdx.x * kWords;
  if (threadIdx.x <= kWords) {
    bounds[threadIdx.x] = first_place(words, count, begin + (int)threadIdx.x);
  }
  __syncthreads();
  for (int w = threadIdx.x / 32; w < kWords && begin + w < vocabulary; w += kThreads / 32) {
    const size_t at = (size_t)(begin + w) * D;
    Vector<O, W> o[K];
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int c = (k * 32 + lane) * W;
      if (c < D) o[k] = load<W>(other + at + c);
    }
    float sum[K * W] = {};
    const int end = begin + w == padding ? bounds[w] : bounds[w + 1];
    for (int i = bounds[w]; i < end;) {
      const bool is_piece = i % kPlaces == 0 && i + kPlaces <= end;
      add_row(is_piece ? pieces + (size_t)(i / kPlaces) * D : grad + places[i] * D, lane, sum);
      i += is_piece ? kPlaces : 1;
    }
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int c = (k * 32 + lane) * W;
      if (c >= D) continue;
      float v[W];
      unpack<W>(o[k], v);
#pragma unroll
      for (int i = 0; i < W; ++i) v[i] += sum[k * W + i];
      store<W>(result + at + c, v);
    }
  }
}
)cuda";

unsigned blocks_for(int64_t count, int64_t of_block) {
  return static_cast<unsigned>(divide_up(count, of_block));
}

int width_for(const std::vector<at::Tensor>& tensors, int64_t features) {
  const bool fits = features % kWidth == 0 &&
                    std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
                      return is_aligned(tensor, kWidth);
                    });
  return fits ? kWidth : 1;
}

}  // namespace

bool fits_embedding_gradient(int64_t vocabulary, int64_t features) {
  return vocabulary <= kMostWords && features > 0 && features <= kMostFeatures;
}

at::Tensor embedding_gradient(const EmbeddingGradientArguments& a, const Launcher& launcher) {
  const int64_t vocabulary = a.other.size(0), features = a.other.size(1);
  const int64_t count = a.words.numel();
  // Half as many passes as for 64 bits.
  const auto [words, places] =
      at::sort(a.words.flatten().to(at::kInt), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  at::Tensor result = at::empty_like(a.other, a.grad.options());
  const at::Tensor pieces = at::empty({count / kPlaces, features}, a.grad.options());
  const std::string head =
      prelude() + fmt::format(
                      "using O = {};\nconstexpr int D = {}, W = {}, kThreads = {}, "
                      "kWords = {}, kPlaces = {};\n",
                      kernel_type(a.other.scalar_type()), features,
                      width_for({a.grad, a.other, result, pieces}, features), kThreads,
                      kWordsOfBlock, kPlaces);
  const KernelSource sum{"embedding_pieces", head + kRow + kPieces};
  const KernelSource main{"embedding_gradient", head + kRow + kGradient};
  launcher.prepare(main);
  if (count >= kPlaces) {
    launcher(sum,
             {.grid = {blocks_for(count / kPlaces, kThreads / kWarp), 1}, .block = {kThreads, 1}},
             a.grad.data_ptr(), words.data_ptr(), places.data_ptr(), static_cast<int>(count),
             pieces.data_ptr());
  }
  launcher(main, {.grid = {blocks_for(vocabulary, kWordsOfBlock), 1}, .block = {kThreads, 1}},
           a.grad.data_ptr(), words.data_ptr(), places.data_ptr(), static_cast<int>(count),
           pieces.data_ptr(), a.other.data_ptr(), result.data_ptr(), static_cast<int>(vocabulary),
           static_cast<int>(a.padding_idx));
  return result;
}

at::Tensor embedding_gradient_unfused(const EmbeddingGradientArguments& a) {
  const at::Tensor of_words = at::embedding_dense_backward(
      a.grad, a.words, a.other.size(0), a.padding_idx, /*scale_grad_by_freq=*/false);
  return a.other.to(of_words.scalar_type()) + of_words;
}

}  // namespace tensorpack::cuda
