// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/detail/saved_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <mutex>

#include "tensorpack/graph/host_copy.h"
#include "tensorpack/graph/operator_watch.h"

namespace tensorpack {

void SavedState::save(const at::Tensor& tensor) {
  const Unwatched unwatched;
  at::NoGradGuard no_grad;
  tensors_.emplace_back(tensor.detach(), host_copy(tensor));
}

void SavedState::save(const at::Generator& generator) {
  at::Generator handle = generator;
  std::lock_guard<std::mutex> lock(handle.mutex());
  generators_.emplace_back(handle, handle.get_state());
}

void SavedState::add(const SavedState& other) {
  tensors_.insert(tensors_.end(), other.tensors_.begin(), other.tensors_.end());
  generators_.insert(generators_.end(), other.generators_.begin(), other.generators_.end());
}

SavedState SavedState::saved_again() const {
  SavedState now;
  for (const auto& [tensor, contents] : tensors_) now.save(tensor);
  for (const auto& [generator, state] : generators_) now.save(generator);
  return now;
}

at::Tensor SavedState::saved(const at::Tensor& tensor) const {
  for (const auto& [saved, contents] : tensors_) {
    if (saved.is_alias_of(tensor) && saved.sizes() == tensor.sizes() &&
        saved.storage_offset() == tensor.storage_offset()) {
      return contents;
    }
  }
  return {};
}

std::vector<at::Tensor> SavedState::tensors() const {
  std::vector<at::Tensor> tensors;
  for (const auto& [tensor, contents] : tensors_) tensors.push_back(tensor);
  return tensors;
}

void SavedState::restore() const {
  const Unwatched unwatched;
  at::NoGradGuard no_grad;
  for (const auto& [tensor, contents] : tensors_) {
    at::Tensor(tensor).copy_(contents);
  }
  for (const auto& [generator, state] : generators_) {
    at::Generator handle = generator;
    std::lock_guard<std::mutex> lock(handle.mutex());
    handle.set_state(state);
  }
}

}  // namespace tensorpack
