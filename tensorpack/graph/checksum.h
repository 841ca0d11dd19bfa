// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Of all the memory that a tensor of the host is a part of; 0 for other tensors.
inline uint64_t checksum(const at::Tensor& tensor) {
  if (!tensor.has_storage() || !tensor.device().is_cpu()) return 0;
  const auto* bytes = static_cast<const uint8_t*>(tensor.storage().unsafeGetStorageImpl()->data());
  const size_t count = tensor.storage().nbytes();
  uint64_t hash = 14695981039346656037ULL;
  for (size_t i = 0; i + 8 <= count; i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    hash = (hash ^ word) * 1099511628211ULL;
  }
  for (size_t i = count - count % 8; i < count; ++i) hash = (hash ^ bytes[i]) * 1099511628211ULL;
  return hash;
}

}  // namespace tensorpack
