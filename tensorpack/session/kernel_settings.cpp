// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/kernel_settings.h"

#include <ATen/Context.h>

#include <mutex>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

struct Holders {
  std::mutex mutex;
  int count = 0;
  KernelSettings settings = {};
  detail::KernelSwitches before = {};
};

Holders& holders() {
  static Holders instance;
  return instance;
}

const char* word(bool value) { return value ? "on" : "off"; }

}  // namespace

detail::KernelSwitches detail::KernelSwitches::now() {
  const at::Context& context = at::globalContext();
  return {context.allowTF32CuBLAS(),         context.allowTF32CuDNN(),
          context.benchmarkCuDNN(),          context.deterministicCuDNN(),
          context.deterministicAlgorithms(), context.deterministicAlgorithmsWarnOnly(),
          context.benchmarkLimitCuDNN()};
}

void detail::KernelSwitches::set() const {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(tf32_cublas);
  context.setAllowTF32CuDNN(tf32_cudnn);
  context.setBenchmarkCuDNN(benchmark);
  context.setDeterministicCuDNN(cudnn);
  context.setDeterministicAlgorithms(algorithms, warn_only);
  context.setBenchmarkLimitCuDNN(candidates);
}

HoldKernelSettings::HoldKernelSettings(KernelSettings settings) {
  TP_CHECK(settings.cudnn_candidates >= 0, "session",
           "SessionOptions::cudnn_candidates is {}. Give a number of kernels, or 0 for all.",
           settings.cudnn_candidates);
  Holders& held = holders();
  const std::lock_guard lock(held.mutex);
  TP_CHECK(
      held.count == 0 || held.settings == settings, "session",
      "another session on CUDA has tf32 {}, deterministic kernels {} and {} candidates of cuDNN, "
      "this one asks for {}, {} and {}. libtorch has these switches once for all: give both the "
      "same SessionOptions::precision, .deterministic and .cudnn_candidates, or end the other "
      "one first.",
      word(held.settings.tf32), word(held.settings.deterministic), held.settings.cudnn_candidates,
      word(settings.tf32), word(settings.deterministic), settings.cudnn_candidates);
  if (held.count++ > 0) return;
  held.before = detail::KernelSwitches::now();
  held.settings = settings;
  detail::KernelSwitches{.tf32_cublas = settings.tf32,
                         .tf32_cudnn = settings.tf32,
                         .benchmark = !settings.deterministic && settings.cudnn_candidates != 1,
                         .cudnn = settings.deterministic,
                         .algorithms = settings.deterministic,
                         .warn_only = true,
                         .candidates = settings.cudnn_candidates}
      .set();
}

HoldKernelSettings::~HoldKernelSettings() {
  Holders& held = holders();
  const std::lock_guard lock(held.mutex);
  if (--held.count == 0) held.before.set();
}

RepeatableKernels::RepeatableKernels(c10::Device device) {
  if (!device.is_cuda()) return;
  before_ = detail::KernelSwitches::now();
  detail::KernelSwitches repeatable = *before_;
  repeatable.algorithms = repeatable.warn_only = repeatable.cudnn = true;
  repeatable.benchmark = false;
  repeatable.set();
}

RepeatableKernels::~RepeatableKernels() {
  if (before_) before_->set();
}

}  // namespace tensorpack
