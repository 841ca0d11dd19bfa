// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/precision.h"

#include <utility>

#include "tensorpack/graph/torch_compat.h"

namespace tensorpack {
namespace {

thread_local Precision tower_precision = Precision::kFloat32;
thread_local Precision cast_precision = Precision::kFloat32;  // what autocast is set to

bool casts(Precision precision) {
  return precision == Precision::kBFloat16 || precision == Precision::kFloat16;
}

void set_casts(Precision precision) {
  cast_precision = precision;
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

MixedPrecision::MixedPrecision(Precision precision) : before_(cast_precision) {
  set_casts(precision);
}

MixedPrecision::~MixedPrecision() {
  set_casts(before_);
  // The casts of weights are of this call's values; the next call has others.
  if (!casts(before_)) at::autocast::clear_cache();
}

TowerPrecision::TowerPrecision(Precision precision)
    : before_(std::exchange(tower_precision, precision)) {}

TowerPrecision::~TowerPrecision() { tower_precision = before_; }

Precision TowerPrecision::current() { return tower_precision; }

}  // namespace tensorpack
