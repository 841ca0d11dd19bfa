// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack {

/// True if the processor has AVX2 and FMA. Functions compiled for them are called only then.
inline bool has_avx2() {
#if defined(__x86_64__)
  static const bool answer = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return answer;
#else
  return false;
#endif
}

}  // namespace tensorpack
