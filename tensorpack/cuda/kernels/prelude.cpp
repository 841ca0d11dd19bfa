// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/prelude.h"

#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kTypes = R"cuda(
struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
__device__ __forceinline__ void from_float(float v, float& to) { to = v; }
#ifdef __CUDACC_RTC__
__device__ __forceinline__ float to_float(f16 v) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(v.bits));
  return f;
}
__device__ __forceinline__ void from_float(float v, f16& to) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(v));
}
#else
__device__ __forceinline__ float to_float(f16 v) {
  _Float16 h;
  __builtin_memcpy(&h, &v.bits, 2);
  return (float)h;
}
__device__ __forceinline__ void from_float(float v, f16& to) {
  const _Float16 h = (_Float16)v;
  __builtin_memcpy(&to.bits, &h, 2);
}
#endif
__device__ __forceinline__ void from_float(float v, bf16& to) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(v));
#else
  const unsigned u = __float_as_uint(v);
  to.bits = v != v ? 0x7fff : (unsigned short)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
#endif
}

// W neighbouring elements, loaded and stored as one.
template <class T, int W>
struct alignas(sizeof(T) * W) Vector {
  T item[W];
};
template <int W, class T>
__device__ __forceinline__ Vector<T, W> load(const T* p) {
  return *reinterpret_cast<const Vector<T, W>*>(p);
}
template <int W, class T>
__device__ __forceinline__ void unpack(const Vector<T, W>& v, float (&f)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) f[i] = to_float(v.item[i]);
}
template <int W, class T>
__device__ __forceinline__ void store(T* p, const float (&f)[W]) {
  Vector<T, W> v;
#pragma unroll
  for (int i = 0; i < W; ++i) from_float(f[i], v.item[i]);
  *reinterpret_cast<Vector<T, W>*>(p) = v;
}
__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }
__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7fc00000u); }
// Keeps NaN.
__device__ __forceinline__ float relu(float v) { return v <= 0.f ? 0.f : v; }
)cuda";

constexpr const char* kOverlap = R"cuda(
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
)cuda";

}  // namespace

bool has_kernel_type(c10::ScalarType type) {
  return type == c10::kFloat || type == c10::kBFloat16 || type == c10::kHalf;
}

std::string kernel_type(c10::ScalarType type) {
  TP_ASSERT(has_kernel_type(type));
  if (type == c10::kFloat) return "float";
  return type == c10::kBFloat16 ? "bf16" : "f16";
}

std::string prelude() { return kTypes; }
std::string kernel_overlap() { return kOverlap; }

}  // namespace tensorpack::cuda
