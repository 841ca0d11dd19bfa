// SPDX-License-Identifier: Apache-2.0
// Contents of tensors and generators, to be put back later.
#pragma once

#include <ATen/core/Generator.h>

#include <utility>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Copies of what tensors and generators held when they were saved. Copies of this object share
/// the contents.
class SavedState {
 public:
  void save(const at::Tensor& tensor);
  void save(const at::Generator& generator);
  /// Saves what `other` saved, as of then.
  void add(const SavedState& other);
  /// What the same tensors and generators hold now.
  SavedState saved_again() const;
  /// What the tensor held, in the memory of the host; undefined if it was not saved.
  at::Tensor saved(const at::Tensor& tensor) const;
  /// The tensors themselves.
  std::vector<at::Tensor> tensors() const;
  /// Writes everything back, in place.
  void restore() const;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors_;        // (tensor, its contents)
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;  // (generator, its state)
};

}  // namespace tensorpack
