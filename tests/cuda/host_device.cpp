// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/host_device.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

// What a device has built in. Threads are fibers that change at barriers.
constexpr const char* kBuiltIns = R"source(
#include <math.h>
#include <string.h>
#include <ucontext.h>
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __shared__ static
#define __launch_bounds__(...)
struct float2 { float x, y; };
struct dim { unsigned x, y; };
static dim gridDim, blockDim, blockIdx, threadIdx;
constexpr unsigned kMostThreads = 1024;
static ucontext_t fibers[kMostThreads], scheduler;
static char is_done[kMostThreads];
static float exchanged[kMostThreads];
static unsigned current;
inline void __syncthreads() { swapcontext(&fibers[current], &scheduler); }
inline void __threadfence() {}
inline float __shfl_xor_sync(unsigned, float v, int o) {
  exchanged[current] = v;
  __syncthreads();
  const float other = exchanged[current ^ o];
  __syncthreads();
  return other;
}
template <class T> T __ldcg(const T* p) { return *p; }
inline unsigned atomicInc(unsigned* p, unsigned most) {
  const unsigned old = *p;
  *p = old >= most ? 0 : old + 1;
  return old;
}
inline float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
inline unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
)source";

constexpr const char* kRun = R"source(
template <int... I> struct Indices {};
template <int N, int... I> struct First : First<N - 1, N - 1, I...> {};
template <int... I> struct First<0, I...> { using type = Indices<I...>; };
static void** kernel_arguments;
template <class... A, int... I>
void call(void (*kernel)(A...), Indices<I...>) {
  kernel(*static_cast<A*>(kernel_arguments[I])...);
}
template <class... A>
void call(void (*kernel)(A...)) { call(kernel, typename First<sizeof...(A)>::type()); }
static void thread_main() {
  call(&KERNEL);
  is_done[current] = 1;
  swapcontext(&fibers[current], &scheduler);
}
extern "C" void run_on_host(const unsigned* grid, const unsigned* block, void** arguments) {
  gridDim = {grid[0], grid[1]};
  blockDim = {block[0], block[1]};
  kernel_arguments = arguments;
  const unsigned threads = block[0] * block[1];
  constexpr size_t kStack = 64 << 10;
  alignas(16) static char stacks[kMostThreads * kStack];
  for (unsigned b = 0; b < grid[0] * grid[1]; ++b) {
    blockIdx = {b % grid[0], b / grid[0]};
    for (unsigned t = 0; t < threads; ++t) {
      is_done[t] = 0;
      getcontext(&fibers[t]);
      fibers[t].uc_stack.ss_sp = &stacks[t * kStack];
      fibers[t].uc_stack.ss_size = kStack;
      makecontext(&fibers[t], thread_main, 0);
    }
    for (unsigned left = threads; left > 0;) {
      for (current = 0; current < threads; ++current) {
        if (is_done[current]) continue;
        threadIdx = {current % block[0], current / block[0]};
        swapcontext(&scheduler, &fibers[current]);
        left -= is_done[current];
      }
    }
  }
}
)source";

// Kernels are watched as the program is.
#ifdef __SANITIZE_ADDRESS__
constexpr const char* kSanitizers =
    "-fsanitize=address,undefined -fno-sanitize-recover=undefined -g1";
#else
constexpr const char* kSanitizers = "";
#endif

}  // namespace

HostLauncher::Run HostLauncher::compiled(const KernelSource& kernel) const {
  // Loaded code stays loaded, and its folder may go.
  static std::map<std::string, Run> all;
  Run& run = all[kernel.text];
  if (run != nullptr) return run;
  const TempDir folder;
  const auto source = folder / "kernel.cpp";
  const auto library = folder / "kernel.so";
  std::string end = kRun;
  end.replace(end.find("KERNEL"), 6, kernel.name);
  write_file_atomically(source, kBuiltIns + kernel.text + end);
  const char* compiler = std::getenv("CXX");
  const std::string command = fmt::format("{} -std=c++17 -O0 -w {} -shared -fPIC -o {} {}",
                                          compiler != nullptr ? compiler : "c++", kSanitizers,
                                          library.string(), source.string());
  TP_CHECK(std::system(command.c_str()) == 0, "test", "a kernel does not compile on the host");
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  TP_CHECK(handle != nullptr, "test", "{}", dlerror());
  run = reinterpret_cast<Run>(dlsym(handle, "run_on_host"));
  TP_ASSERT(run != nullptr);
  return run;
}

void HostLauncher::prepare(const KernelSource& kernel) const { compiled(kernel); }

void HostLauncher::launch(const KernelSource& kernel, const LaunchShape& shape,
                          void** arguments) const {
  compiled(kernel)(shape.grid.data(), shape.block.data(), arguments);
}

}  // namespace tensorpack::cuda
