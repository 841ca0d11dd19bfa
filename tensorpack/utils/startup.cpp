// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/startup.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <mutex>
#include <optional>
#include <system_error>

#include "tensorpack/utils/cpu_allocator.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/launch_environment.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {

namespace {

void set_intra_op_threads() {
  if (env("OMP_NUM_THREADS")) return;
  at::set_num_threads(std::max(1, affinity_cores() / detect_launch().local_size));
}

void keep_freed_memory() {
#ifdef __GLIBC__
  // Older versions of glibc refuse more than 32 MB here.
  if (mallopt(M_MMAP_THRESHOLD, 1 << 30) == 0) mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

// The file that matrix products come from; empty when libtorch carries its own.
std::filesystem::path blas_library() {
  if (at::hasMKL()) return {};
  void* sgemm = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info{};
  if (sgemm == nullptr || dladdr(sgemm, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code code;
  return std::filesystem::canonical(info.dli_fname, code);
}

}  // namespace

void tune_process() {
  static std::once_flag once;
  std::call_once(once, [] {
    set_intra_op_threads();
    keep_freed_memory();
    detail::install_caching_cpu_allocator();
    if (const std::string advice = detail::blas_advice(blas_library()); !advice.empty()) {
      logging::warning("{}", advice);
    }
  });
}

void single_threaded_ops() { set_op_threads(1); }

void set_op_threads(int count) {
  // The first call initializes ATen's setting in this thread and would undo ours if it came later.
  at::get_num_threads();
  // at::set_num_threads would change the default of later threads. The OpenMP runtime is looked up
  // because it must be the one libtorch brought along, and wheels bring their own.
  using SetNumThreads = void (*)(int);
  static const auto set_num_threads =
      reinterpret_cast<SetNumThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set_num_threads != nullptr) set_num_threads(count);
}

OpThreadsScope::OpThreadsScope(int count) : outer_(at::get_num_threads()) {
  if (count != outer_) set_op_threads(count);
}

OpThreadsScope::~OpThreadsScope() {
  if (at::get_num_threads() != outer_) set_op_threads(outer_);
}

std::string detail::blas_advice(const std::filesystem::path& library) {
  const std::string path = library.string();
  const auto has = [&path](const char* word) { return path.find(word) != std::string::npos; };
  if (has("openblas-pthread")) {
    return "The BLAS is " + path +
           ", which ignores the number of threads it is given. Install libopenblas0-openmp.";
  }
  const bool reference = library.filename().string().rfind("libblas", 0) == 0 && !has("openblas") &&
                         !has("blis") && !has("atlas") && !has("mkl");
  if (!reference) return "";
  return "The BLAS is the reference one, " + path +
         ", 15 times slower than it should be. Install libopenblas0-openmp.";
}

}  // namespace tensorpack
