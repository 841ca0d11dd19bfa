// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Runs one program, for one shape of its inputs, many times, on one thread.
class ProgramRunner {
 public:
  virtual ~ProgramRunner() = default;

  /// The fetched values, as tensors of the caller's own.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) = 0;

  /// How many runs there are until one does what all later ones do: captured work is warmed up
  /// first.
  virtual int runs_until_settled() const { return 1; }

  /// Gives back memory of the device that it needs only while it runs; the next run takes it anew,
  /// and takes longer. False if it has none.
  virtual bool give_back_memory() { return false; }
};

}  // namespace tensorpack
