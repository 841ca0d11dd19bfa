// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/fake_data.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include "tensorpack/dataflow/rng.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

FakeData::FakeData(std::vector<FakeComponent> components, FakeDataOptions options)
    : components_(std::move(components)),
      options_(options),
      seed_(seed_or_next(options.seed)),
      generator_(at::detail::createCPUGenerator()) {
  TP_CHECK(options_.size >= 0, "FakeData", "the size must not be negative, got {}.", options_.size);
  for (const FakeComponent& c : components_) {
    TP_CHECK(c.low < c.high, "FakeData", "the range {}..{} of a component is empty.", c.low,
             c.high);
  }
  start(0);
  if (!options_.random) constant_ = draw();
}

void FakeData::start(int64_t pass) {
  generator_.set_current_seed(Rng(seed_, pass)());
  position_ = 0;
}

std::optional<DataPoint> FakeData::next() {
  if (position_ == options_.size) return std::nullopt;
  ++position_;
  return options_.random ? draw() : constant_;
}

DataPoint FakeData::draw() {
  DataPoint point;
  for (const FakeComponent& c : components_) {
    if (at::isFloatingType(c.dtype)) {
      point.push_back(at::empty(c.shape, c.dtype).uniform_(c.low, c.high, generator_));
    } else {
      point.push_back(
          at::empty(c.shape, c.dtype)
              .random_(static_cast<int64_t>(c.low), static_cast<int64_t>(c.high), generator_));
    }
  }
  return point;
}

}  // namespace tensorpack
