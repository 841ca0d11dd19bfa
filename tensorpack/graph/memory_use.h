// SPDX-License-Identifier: Apache-2.0
// How much memory a program will hold, told from its trace.
#pragma once

#include <cstdint>
#include <vector>

#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// What the operators of a trace make, and when a program of it lets go of that. Inputs, variables
/// and constants are not counted, nor is what operators take for themselves.
class MemoryUse {
 public:
  explicit MemoryUse(const Trace& trace);

  /// The most bytes that are held at a time.
  int64_t peak() const { return peak_; }
  /// The first node during which they are.
  int32_t peak_position() const { return peak_position_; }
  /// The bytes of this memory; 0 if it is not counted.
  int64_t bytes(StorageId storage) const { return lives_[storage].bytes; }
  /// True if the memory is counted and held while this node runs.
  bool is_held(StorageId storage, int32_t position) const {
    const Life& life = lives_[storage];
    return life.bytes > 0 && life.begin <= position && position <= life.end;
  }

 private:
  struct Life {
    int64_t bytes = 0;
    int32_t begin = -1, end = -1;  // nodes
  };
  std::vector<Life> lives_;  // by storage
  int64_t peak_ = 0;
  int32_t peak_position_ = 0;
};

}  // namespace tensorpack
