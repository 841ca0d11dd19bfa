// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/from_generator.h"

#include "tensorpack/dataflow/detail/draw_scope.h"
#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/utils/seed.h"

namespace tensorpack {

struct FromGenerator::State {
  Function function;
  StageSeed seed;
  std::optional<Rng> rng = {};
  std::optional<Generator<DataPoint>> generator = {};  // from the first datapoint of a pass on
  int64_t pass = 0;
  int64_t yielded = 0;  // in this pass
  detail::ReuseWatch reuse{"FromGenerator", /*kept=*/1};
};

FromGenerator::FromGenerator(Function function, FromGeneratorOptions options, Called)
    : state_(
          new State{.function = std::move(function),
                    .seed = options.seed ? StageSeed(options.seed) : StageSeed::counted_apart()}) {}

FromGenerator::FromGenerator(FromGenerator&&) noexcept = default;
FromGenerator& FromGenerator::operator=(FromGenerator&&) noexcept = default;
FromGenerator::~FromGenerator() = default;

void FromGenerator::start(int64_t pass) {
  state_->generator.reset();
  state_->pass = pass;
  state_->yielded = 0;
  state_->reuse.forget();
}

std::optional<DataPoint> FromGenerator::next() {
  State& my = *state_;
  const uint64_t seed = derive_seed(my.seed.value(), static_cast<uint64_t>(my.pass));
  const detail::DrawScope scope(derive_seed(seed, static_cast<uint64_t>(my.yielded)));
  if (!my.generator) {
    my.rng.emplace(my.seed.value(), my.pass);
    my.generator = my.function(my.pass, *my.rng);
  }
  std::optional<DataPoint> point = my.generator->next();
  ++my.yielded;
  if (point) my.reuse.look(*point);
  return point;
}

}  // namespace tensorpack
