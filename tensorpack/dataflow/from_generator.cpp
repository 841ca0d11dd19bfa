// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/from_generator.h"

#include "tensorpack/dataflow/detail/draw_scope.h"

namespace tensorpack {

void FromGenerator::start(int64_t pass) {
  generator_.reset();
  pass_ = pass;
  yielded_ = 0;
  reuse_.forget();
}

std::optional<DataPoint> FromGenerator::next() {
  const uint64_t seed = derive_seed(seed_.value(), static_cast<uint64_t>(pass_));
  const detail::DrawScope scope(derive_seed(seed, static_cast<uint64_t>(yielded_)));
  if (!generator_) {
    state_->rng.emplace(seed_.value(), pass_);
    generator_ = state_->function(pass_, *state_->rng);
  }
  std::optional<DataPoint> point = generator_->next();
  ++yielded_;
  if (point) reuse_.look(*point);
  return point;
}

}  // namespace tensorpack
