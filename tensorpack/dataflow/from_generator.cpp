// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/from_generator.h"

#include <algorithm>

#include "tensorpack/dataflow/detail/draw_scope.h"
#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

void FromGenerator::start(int64_t pass) {
  generator_.reset();
  pass_ = pass;
  yielded_ = 0;
  last_.clear();
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
  if (point) check_not_rewritten(*point);
  return point;
}

void FromGenerator::check_not_rewritten(const DataPoint& point) {
  for (size_t i = 0; i < std::min(point.size(), last_.size()); ++i) {
    TP_CHECK(!point[i].is_same(last_[i].tensor) || detail::version_of(point[i]) == last_[i].version,
             "FromGenerator",
             "component {} was written to after it was yielded, and is yielded again: a queue or "
             "shuffle() that keeps the first datapoint would have the second one in its place. "
             "Make a new tensor for every datapoint, or yield its clone().",
             i);
  }
  last_.clear();
  for (const at::Tensor& tensor : point) last_.push_back({tensor, detail::version_of(tensor)});
}

}  // namespace tensorpack
