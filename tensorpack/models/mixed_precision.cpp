// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/mixed_precision.h"

#include "tensorpack/graph/torch_compat.h"

namespace tensorpack {
namespace {

void switch_autocast(bool enabled) {
  set_cpu_autocast(enabled);
  set_cuda_autocast(enabled);
}

}  // namespace

MixedPrecision::MixedPrecision(bool enabled) : was_enabled_(is_cpu_autocast()) {
  switch_autocast(enabled);
}

MixedPrecision::~MixedPrecision() {
  switch_autocast(was_enabled_);
  // The casts of weights are of this call's values; the next call has others.
  if (!was_enabled_) at::autocast::clear_cache();
}

}  // namespace tensorpack
