// SPDX-License-Identifier: Apache-2.0
// Tensors that a recorded function knows from elsewhere.
//
// Note [Captured tensors]
// A constant of a trace lies in memory that no recorded operator made. If somebody else owns that
// memory once recording is over - the function object, a module, a static variable - the function
// captured it, and it may be written between runs: the program reads it at every run, like an
// input, and folds nothing that is computed from it. Memory without another owner was made by the
// function on the host: numbers that libtorch wraps, memory filled through a pointer. That is
// folded, and compared when the function is recorded again (see Note [Verifying again]).
//
// Who writes `k = other` gives the captured memory up instead of writing to it. The trace refers to
// memory by tensors of its own, so that the one of the function goes away, which is noticed.
#pragma once

#include <c10/core/TensorImpl.h>
#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Does not keep the tensor alive.
using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

WeakTensor weak(const at::Tensor& tensor);
/// How many handles there are of the tensor.
int64_t handles(const WeakTensor& tensor);
bool is_handle(const WeakTensor& tensor, const at::Tensor& handle);

/// A number that libtorch made a tensor of, to call an operator that takes tensors.
bool is_wrapped_number(const at::Tensor& tensor);

/// Memory that some tensors are in, to tell whether others are, too.
class OwnedMemory {
 public:
  explicit OwnedMemory(const std::vector<at::Tensor>& tensors);
  bool has_other_owner(const at::Tensor& tensor) const;

 private:
  std::unordered_map<const void*, std::unordered_set<const void*>> tensors_;  // by storage
};

/// A tensor that the function held when it was recorded.
class CapturedTensor {
 public:
  CapturedTensor(WeakTensor tensor, bool requires_grad);
  /// Whether the function has given the tensor up, or the tensor its memory; or whether it requires
  /// gradients where it did not, or the other way round.
  bool has_changed() const;

 private:
  WeakTensor tensor_;
  const void* memory_;
  bool requires_grad_;
};

}  // namespace tensorpack
