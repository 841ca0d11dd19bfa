// SPDX-License-Identifier: Apache-2.0
// That skipping costs less than reading. That it leads to the same place is in the contract.
#include <gmock/gmock.h>

#include <limits>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/take.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Flows of 100 numbers, and how many of them were made.
class SkipTest : public testing::Test {
 protected:
  DataFlowPtr counted() {
    return numbers(100) | map([this](DataPoint p) {
             ++made_;
             return p;
           });
  }

  int64_t made_ = 0;
};

TEST_F(SkipTest, NothingIsMadeForWhatNobodySees) {
  for (const Stage& stage : {map([](DataPoint p) { return p; }), batch(3), take(90), repeat(2)}) {
    const auto flow = counted() | stage;
    made_ = 0;
    EXPECT_EQ(flow->skip(25), 25);
    EXPECT_EQ(made_, 0);
  }
}

TEST_F(SkipTest, MapThatMayDropHasToLook) {
  const auto flow = counted() | map([](DataPoint p) { return std::optional(p); });
  EXPECT_EQ(flow->skip(25), 25);
  EXPECT_EQ(made_, 25);
}

TEST_F(SkipTest, RepeatLeavesOutWholePasses) {
  const auto flow = counted() | repeat();
  EXPECT_EQ(flow->skip(100'000'000'000'007), 100'000'000'000'007);
  EXPECT_EQ(made_, 0);
  EXPECT_EQ(values(*flow, 1).at(0), 7);
}

TEST_F(SkipTest, ShuffleMakesOnlyWhatItStillHolds) {
  const auto whole = counted() | shuffle({.seed = 1});
  EXPECT_EQ(whole->skip(70), 70);
  EXPECT_EQ(made_, 30) << "the rest of the pass";
  made_ = 0;
  const auto buffered = counted() | shuffle(10, {.seed = 1});
  EXPECT_EQ(buffered->skip(70), 70);
  EXPECT_EQ(made_, 9) << "the buffer, less the last one taken";
}

TEST_F(SkipTest, AnyCountIsLegal) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ((numbers(7) | batch(3))->skip(kMax), 2);
  EXPECT_EQ((numbers(7) | batch(3, {.remainder = true}))->skip(kMax), 3);
  EXPECT_EQ((numbers(7) | repeat(3))->skip(kMax), 21);
  EXPECT_EQ((numbers(7) | shuffle())->skip(kMax), 7);
}

TEST_F(SkipTest, EmptyPassForeverIsAnErrorNotALoop) {
  const auto flow = numbers(0) | repeat();
  EXPECT_THAT([&] { flow->skip(1); }, ThrowsMessage<Error>(HasSubstr("[repeat] pass 1")));
}

TEST_F(SkipTest, ShuffleSaysWhenASizeWasWrong) {
  class Liar final : public DataFlow {
   public:
    std::optional<DataPoint> next() override { return std::nullopt; }
    std::optional<int64_t> size() const override { return 5; }
  };
  const auto flow = Liar() | shuffle();
  EXPECT_THAT([&] { flow->skip(2); },
              ThrowsMessage<Error>(HasSubstr("has ended before the 5 datapoints")));
}

}  // namespace
}  // namespace tensorpack::test
