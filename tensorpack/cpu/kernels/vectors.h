// SPDX-License-Identifier: Apache-2.0
// Vectors of eight floats. Functions that use them are compiled for AVX2, whatever the library is
// compiled for, and called only if the processor has it (see has_avx2()).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tensorpack::cpu {

inline constexpr int64_t kWidth = 8;

using Vector = float __attribute__((vector_size(32)));

/// Floats at any address. clang 14 forgets the alignment of a type that says so.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline Vector load(const float* from) {
  return _mm256_loadu_ps(from);
}
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void store(float* to, Vector value) {
  _mm256_storeu_ps(to, value);
}

/// a * b + c, rounded once. Said in so many words, because compilers do not agree on where they may
/// do that by themselves.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline Vector multiply_add(Vector a, Vector b,
                                                                           Vector c) {
  return _mm256_fmadd_ps(a, b, c);
}

}  // namespace tensorpack::cpu
