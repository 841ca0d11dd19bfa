// SPDX-License-Identifier: Apache-2.0
// Note [Column reductions]
// A tensor in channels_last is a matrix of rows with C columns. A thread owns W neighbouring
// columns and adds up every n-th row of them; a block's threads are summed in shared memory with
// one barrier, each block writes a partial sum, and the last block to arrive sums those: always in
// the same order, so that results repeat. The counter that finds the last block wraps to zero,
// ready for the next launch. All others wait for that block, so blocks are narrow: they have fewer
// partial sums of each column then, and more threads for it. Sums of squares are taken about the
// values of the first row, because those about zero lose everything when the mean is large. A
// second pass over the rows begins with the last one: the caches still hold the end of what the
// first read.
#include <fmt/format.h>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kCombine = R"cuda(
// Sums a and b of all threads that own a column; `finish` gets each column's sums, once.
template <class Finish>
__device__ void combine(const float (&a)[W], const float (&b)[W], int C, float2* partial,
                        unsigned* counter, Finish finish) {
  // [thread of a column][column], a column more than needed so that banks differ
  __shared__ float2 shared[kThreads * W + kThreads];
  const int tx = blockDim.x, ty = blockDim.y, x = threadIdx.x, y = threadIdx.y;
  const int columns = tx * W, pitch = columns + 1, tid = y * tx + x, n = tx * ty;
  const int base = blockIdx.x * columns;
#pragma unroll
  for (int i = 0; i < W; ++i) shared[y * pitch + i * tx + x] = {a[i], b[i]};
  __syncthreads();
  // Each column is summed by a team of neighbouring lanes.
  const int team = min(32, n / columns);
  for (int first = 0; first < columns; first += n / team) {
    const int slot = first + tid / team, member = tid % team;
    const int c = base + (slot % tx) * W + slot / tx;
    float s = 0.f, t = 0.f;
    if (slot < columns) {
      for (int r = member; r < ty; r += team) {
        const float2 v = shared[r * pitch + slot];
        s += v.x;
        t += v.y;
      }
    }
    for (int o = team / 2; o > 0; o /= 2) {
      s += __shfl_xor_sync(~0u, s, o);
      t += __shfl_xor_sync(~0u, t, o);
    }
    if (member == 0 && slot < columns && c < C) partial[(size_t)blockIdx.y * C + c] = {s, t};
  }
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (tid == 0) is_last = atomicInc(&counter[blockIdx.x], gridDim.y - 1) == gridDim.y - 1;
  __syncthreads();
  if (!is_last) return;
  // Neighbouring lanes take neighbouring columns, so that loads are whole lines.
  const int column = tid % columns, part = tid / columns, parts = n / columns;
  const int c = base + column;
  float s = 0.f, t = 0.f;
  if (c < C) {
    int p = part;
    for (; p + 3 * parts < gridDim.y; p += 4 * parts) {
      float2 v[4];
#pragma unroll
      for (int u = 0; u < 4; ++u) v[u] = __ldcg(&partial[(size_t)(p + u * parts) * C + c]);
      s += (v[0].x + v[1].x) + (v[2].x + v[3].x);
      t += (v[0].y + v[1].y) + (v[2].y + v[3].y);
    }
    for (; p < gridDim.y; p += parts) {
      const float2 v = __ldcg(&partial[(size_t)p * C + c]);
      s += v.x;
      t += v.y;
    }
  }
  __syncthreads();
  shared[tid] = {s, t};
  __syncthreads();
  if (part != 0 || c >= C) return;
  for (int p = 1; p < parts; ++p) {
    s += shared[p * columns + column].x;
    t += shared[p * columns + column].y;
  }
  finish(c, s, t);
}
)cuda";

// Walks over the rows of a thread's columns, U at a time.
constexpr const char* kRows = R"cuda(
constexpr bool kFromTheEnd = true;

template <bool from_the_end = false, class Load, class Use>
__device__ __forceinline__ void for_rows(long long R, Load load_row, Use use) {
  const auto at = [R](long long i) { return from_the_end ? R - 1 - i : i; };
  const long long step = (long long)gridDim.y * blockDim.y;
  long long r = (long long)blockIdx.y * blockDim.y + threadIdx.y;
  for (; r + (U - 1) * step < R; r += U * step) {
    decltype(load_row(r)) rows[U];
#pragma unroll
    for (int u = 0; u < U; ++u) rows[u] = load_row(at(r + u * step));
#pragma unroll
    for (int u = 0; u < U; ++u) use(at(r + u * step), rows[u]);
  }
  for (; r < R; r += step) use(at(r), load_row(at(r)));
}

__device__ __forceinline__ int first_column() { return (blockIdx.x * blockDim.x + threadIdx.x) * W; }
)cuda";

}  // namespace

std::string column_head(const ColumnPlan& plan, int unroll) {
  return prelude() + fmt::format("using T = {};\nconstexpr int W = {}, U = {}, kThreads = {};\n",
                                 kernel_type(plan.type), plan.width, unroll, ColumnPlan::kThreads);
}
std::string column_sums() { return kCombine; }
std::string column_rows() { return kRows; }

}  // namespace tensorpack::cuda
