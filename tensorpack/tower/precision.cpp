// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/precision.h"

#include <utility>

#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {
namespace {

struct PrecisionState {
  Precision of_towers = Precision::kFloat32;
  Precision of_casts = Precision::kFloat32;  // what autocast is set to
};

PrecisionState& state() { return ThreadFrame::current().get<PrecisionState>(); }

bool casts(Precision precision) {
  return precision == Precision::kBFloat16 || precision == Precision::kFloat16;
}

void set_casts(Precision precision) {
  state().of_casts = precision;
  const auto dtype = precision == Precision::kFloat16 ? at::kHalf : at::kBFloat16;
  set_autocast(at::kCPU, casts(precision), at::kBFloat16);
  set_autocast(at::kCUDA, casts(precision), dtype);
}

}  // namespace

std::string to_string(Precision precision) {
  switch (precision) {
    case Precision::kFloat32:
      return "float32";
    case Precision::kTf32:
      return "tf32";
    case Precision::kBFloat16:
      return "bfloat16";
    case Precision::kFloat16:
      return "float16";
  }
  return "";
}

MixedPrecision::MixedPrecision(Precision precision) : before_(state().of_casts) {
  set_casts(precision);
}

MixedPrecision::~MixedPrecision() {
  set_casts(before_);
  // The casts of weights are of this call's values; the next call has others.
  if (!casts(before_)) at::autocast::clear_cache();
}

TowerPrecision::TowerPrecision(Precision precision)
    : before_(std::exchange(state().of_towers, precision)) {}

TowerPrecision::~TowerPrecision() { state().of_towers = before_; }

Precision TowerPrecision::current() { return state().of_towers; }

}  // namespace tensorpack
