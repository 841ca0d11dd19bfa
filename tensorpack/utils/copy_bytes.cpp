// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/copy_bytes.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tensorpack {

#ifdef __SSE2__

void copy_bytes_past_caches(void* to, const void* from, std::size_t count) {
  constexpr std::size_t kLine = 64;
  auto* destination = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(destination) % kLine;
  const std::size_t head = std::min(count, (kLine - misaligned) % kLine);
  std::memcpy(destination, source, head);
  std::size_t at = head;
  for (; at + kLine <= count; at += kLine) {
    for (std::size_t i = at; i < at + kLine; i += sizeof(__m128i)) {
      const __m128i word = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(destination + i), word);
    }
  }
  _mm_sfence();  // other threads see what was written here
  std::memcpy(destination + at, source + at, count - at);
}

#else

void copy_bytes_past_caches(void* to, const void* from, std::size_t count) {
  std::memcpy(to, from, count);
}

#endif

}  // namespace tensorpack
