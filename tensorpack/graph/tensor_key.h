// SPDX-License-Identifier: Apache-2.0
// The identity of a tensor while it is recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Tells tensors apart by storage and geometry: autograd hands saved tensors back in new wrappers.
struct TensorKey {
  const void* storage;
  int64_t offset;
  std::vector<int64_t> geometry;  // sizes, then strides
  c10::ScalarType dtype;
  uint8_t bits;  // conjugate, negative
  bool operator==(const TensorKey& other) const = default;
};

struct TensorKeyHash {
  size_t operator()(const TensorKey& key) const {
    size_t hash = std::hash<const void*>()(key.storage) * 31 + static_cast<size_t>(key.offset) * 7 +
                  static_cast<size_t>(key.dtype);
    for (int64_t extent : key.geometry) hash = hash * 1000003U + static_cast<size_t>(extent);
    return hash;
  }
};

/// The storage of a tensor, or the tensor itself if it has none.
inline const void* memory_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? static_cast<const void*>(tensor.storage().unsafeGetStorageImpl())
                              : static_cast<const void*>(tensor.unsafeGetTensorImpl());
}

inline TensorKey key_of(const at::Tensor& tensor) {
  TensorKey key{memory_of(tensor), 0, {}, tensor.scalar_type(), 0};
  if (!tensor.has_storage()) return key;
  key.offset = tensor.storage_offset();
  key.geometry.reserve(2 * tensor.dim());
  key.geometry.insert(key.geometry.end(), tensor.sizes().begin(), tensor.sizes().end());
  key.geometry.insert(key.geometry.end(), tensor.strides().begin(), tensor.strides().end());
  key.bits = static_cast<uint8_t>((tensor.is_conj() ? 1 : 0) | (tensor.is_neg() ? 2 : 0));
  return key;
}

/// Whether two tensors have the same key.
inline bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  if (!a.has_storage() || !b.has_storage()) return a.is_same(b);
  return memory_of(a) == memory_of(b) && a.storage_offset() == b.storage_offset() &&
         a.sizes() == b.sizes() && a.strides() == b.strides() && a.scalar_type() == b.scalar_type();
}

}  // namespace tensorpack
