// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/fake_data.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>

#include "tensorpack/dataflow/rng.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// A generator of libtorch cannot jump. It is seeded anew for every so many datapoints, so that
// skip() has to draw fewer than that.
constexpr int64_t kBlock = 64;

}  // namespace

FakeData::FakeData(std::initializer_list<FakeComponent> components, FakeDataOptions options)
    : FakeData(std::vector(components), options) {}

FakeData::FakeData(std::vector<FakeComponent> components, FakeDataOptions options)
    : components_(std::move(components)),
      options_(options),
      seed_(options.seed),
      generator_(at::detail::createCPUGenerator()) {
  TP_CHECK(options_.size >= 0, "FakeData", "the size must not be negative, got {}.", options_.size);
  for (const FakeComponent& c : components_) {
    // Integers are drawn from low to high - 1, both rounded towards zero.
    const bool is_empty =
        !(c.low < c.high) || (!at::isFloatingType(c.dtype) &&
                              static_cast<int64_t>(c.low) == static_cast<int64_t>(c.high));
    TP_CHECK(!is_empty, "FakeData", "the range {}..{} of a component of type {} is empty.", c.low,
             c.high, c10::toString(c.dtype));
    TP_CHECK(std::all_of(c.shape.begin(), c.shape.end(), [](int64_t size) { return size >= 0; }),
             "FakeData",
             "the shape [{}] of a component has a negative size. Write out all of them.",
             fmt::join(c.shape, ", "));
  }
}

void FakeData::start(int64_t pass) {
  pass_ = pass;
  constant_.reset();
  position_ = 0;
}

std::optional<DataPoint> FakeData::next() {
  if (position_ == options_.size) return std::nullopt;
  const int64_t position = position_++;
  if (options_.random) return draw(pass_, position);
  if (!constant_) constant_ = draw(0, 0);
  return constant_;
}

int64_t FakeData::skip(int64_t count) {
  count = std::min(count, options_.size - position_);
  const int64_t target = position_ + count;
  const int64_t block = options_.random ? target / kBlock * kBlock : target;
  position_ = std::max(position_, block);
  while (position_ < target) next();
  return count;
}

DataPoint FakeData::draw(int64_t pass, int64_t position) {
  if (position % kBlock == 0) {
    const uint64_t seed_of_pass = Rng(seed_.value(), pass)();
    generator_.set_current_seed(Rng(seed_of_pass, position)());
  }
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
