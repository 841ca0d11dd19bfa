// SPDX-License-Identifier: Apache-2.0
// What the kernels that update lists of variables have in common.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <vector>

#include "tensorpack/utils/count_write.h"
#include "tensorpack/utils/parallel_for.h"
#include "tensorpack/utils/processor.h"

namespace tensorpack::kernels {

using at::Tensor;
using at::TensorList;

// Elements a thread takes at a time: a few arrays of this length fit its cache.
inline constexpr int64_t kChunk = int64_t{16} * 1024;

inline bool is_plain(const Tensor& tensor, const Tensor& like) {
  return tensor.scalar_type() == at::kFloat && tensor.sizes() == like.sizes() &&
         tensor.strides() == like.strides() && like.is_non_overlapping_and_dense();
}

// Pointers to the same elements of a variable, its slots and its gradient (the last).
template <size_t N>
struct Chunk {
  std::array<float*, N> data;
  int64_t size;
};

// Loops over chunks are inlined here, so that each is also compiled for wider vectors.
template <size_t N, typename Update>
void update_range(const Chunk<N>* begin, const Chunk<N>* end, const Update& update) {
  for (; begin != end; ++begin) update(*begin);
}

#if defined(__x86_64__)
template <size_t N, typename Update>
[[gnu::target("avx2,fma")]] void update_range_avx2(const Chunk<N>* begin, const Chunk<N>* end,
                                                   const Update& update) {
  for (; begin != end; ++begin) update(*begin);
}
#else
template <size_t N, typename Update>
void update_range_avx2(const Chunk<N>* begin, const Chunk<N>* end, const Update& update) {
  update_range(begin, end, update);
}
#endif

// Gathers the chunks of many variables, so that one loop over threads serves them all.
template <size_t N>
class Chunks {
 public:
  // False if the tensors cannot be walked as plain arrays.
  bool add(std::array<Tensor, N> tensors) {
    const Tensor& variable = tensors[0];
    for (size_t k = 0; k + 1 < N; ++k) {
      if (!is_plain(tensors[k], variable)) return false;
    }
    if (!is_plain(tensors[N - 1], variable)) {  // a gradient in another memory format
      if (tensors[N - 1].scalar_type() != at::kFloat) return false;
      tensors[N - 1] = at::empty_like(variable).copy_(tensors[N - 1]);
      kept_.push_back(tensors[N - 1]);
    }
    for (int64_t start = 0; start < variable.numel(); start += kChunk) {
      Chunk<N> chunk{{}, std::min(kChunk, variable.numel() - start)};
      for (size_t k = 0; k < N; ++k) chunk.data[k] = tensors[k].template data_ptr<float>() + start;
      chunks_.push_back(chunk);
    }
    return true;
  }

  template <typename Update>
  void for_each(const Update& update) const {
    parallel_for(static_cast<int64_t>(chunks_.size()), [&](int64_t begin, int64_t end) {
      const auto run = has_avx2() ? update_range_avx2<N, Update> : update_range<N, Update>;
      run(chunks_.data() + begin, chunks_.data() + end, update);
    });
  }

 private:
  std::vector<Chunk<N>> chunks_;
  std::vector<Tensor> kept_;
};

inline void count_writes(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) count_write(tensor);
}

}  // namespace tensorpack::kernels
