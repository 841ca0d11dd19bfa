// SPDX-License-Identifier: Apache-2.0
// Many tensors in one kernel.
//
// Note [Tables of tensors]
// A block works on a few thousand elements of one tensor, a chunk, which it finds in a table among
// the kernel's parameters. libtorch's kernels over many tensors give a block 65,536: those of a
// small network then run on a handful of multiprocessors.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

constexpr int kTableThreads = 256;  // of a block

/// What a kernel works on: tensors at one place of the lists go together and have as many elements.
/// A list that is empty is not used, and for a tensor that is undefined there is a null pointer.
template <size_t kLists>
using TensorLists = std::array<std::vector<at::Tensor>, kLists>;

/// As the kernels declare it.
template <size_t kLists, size_t kTensors>
struct TensorTable {
  void* data[kLists][kTensors] = {};
  long long elements[kTensors] = {};
  int first_block[kTensors] = {};
  int tensors = 0;
};

/// The elements of a block, for tensors that have so many in all.
int64_t chunk_of(const std::vector<at::Tensor>& tensors);

/// `Table` for kernels, and `part_of_block(table)`, which tells a block its chunk.
std::string tensor_table(size_t lists, size_t tensors, int64_t chunk);

/// Calls launch(table, shape) for all tensors that are not empty, `kTensors` at a time.
template <size_t kTensors, size_t kLists, typename Launch>
void for_each_table(const TensorLists<kLists>& lists, int64_t chunk, Launch launch) {
  using Table = TensorTable<kLists, kTensors>;
  constexpr size_t kMostBytes = 4096, kOthers = 48;  // of a kernel's parameters
  static_assert(sizeof(Table) + kOthers <= kMostBytes);
  for (size_t next = 0; next < lists[0].size();) {
    Table table;
    int64_t blocks = 0;
    for (; next < lists[0].size() && table.tensors < static_cast<int>(kTensors); ++next) {
      const int64_t elements = lists[0][next].numel();
      if (elements == 0) continue;
      const int place = table.tensors++;
      for (size_t k = 0; k < kLists; ++k) {
        if (lists[k].empty() || !lists[k][next].defined()) continue;
        table.data[k][place] = lists[k][next].data_ptr();
      }
      table.elements[place] = elements;
      table.first_block[place] = static_cast<int>(blocks);
      blocks += (elements + chunk - 1) / chunk;
    }
    if (blocks == 0) continue;
    launch(table,
           LaunchShape{.grid = {static_cast<unsigned>(blocks), 1}, .block = {kTableThreads, 1}});
  }
}

}  // namespace tensorpack::cuda
