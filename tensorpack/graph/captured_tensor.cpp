// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/captured_tensor.h"

#include <ATen/ATen.h>

#include <utility>

namespace tensorpack {
namespace {

// nullptr if the tensor is gone.
at::Tensor lock(const WeakTensor& tensor) {
  auto held = tensor.lock();
  return held ? at::Tensor(std::move(held)) : at::Tensor();
}

const void* address_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return tensor.storage().unsafeGetStorageImpl()->data();
}

}  // namespace

WeakTensor weak(const at::Tensor& tensor) { return WeakTensor(tensor.getIntrusivePtr()); }

int64_t handles(const WeakTensor& tensor) { return static_cast<int64_t>(tensor.use_count()); }

bool is_handle(const WeakTensor& tensor, const at::Tensor& handle) {
  const at::Tensor held = lock(tensor);
  return held.defined() && held.is_same(handle);
}

bool is_wrapped_number(const at::Tensor& tensor) {
  return tensor.defined() && tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

OwnedMemory::OwnedMemory(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.has_storage()) continue;
    tensors_[tensor.storage().unsafeGetStorageImpl()].insert(tensor.unsafeGetTensorImpl());
  }
}

bool OwnedMemory::has_other_owner(const at::Tensor& tensor) const {
  if (!tensor.has_storage()) return false;
  const auto found = tensors_.find(tensor.storage().unsafeGetStorageImpl());
  const size_t own = found == tensors_.end() ? 0 : found->second.size();
  return tensor.storage().use_count() > own;
}

CapturedTensor::CapturedTensor(WeakTensor tensor, bool requires_grad)
    : tensor_(std::move(tensor)),
      memory_(address_of(lock(tensor_))),
      requires_grad_(requires_grad) {}

bool CapturedTensor::has_changed() const {
  const at::Tensor tensor = lock(tensor_);
  return !tensor.defined() || address_of(tensor) != memory_ ||
         (tensor.is_leaf() && tensor.requires_grad()) != requires_grad_;
}

}  // namespace tensorpack
