// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataflow.h"

#include <gmock/gmock.h>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/datapoints.h"
#include "tensorpack/dataflow/map.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/throws.h"

namespace outside {

// A user's flow, in the user's namespace: only next(), endless.
class Constant final : public tensorpack::DataFlow {
 public:
  explicit Constant(int64_t value) : value_(value) {}
  std::optional<tensorpack::DataPoint> next() override {
    return tensorpack::DataPoint{torch::full({2}, value_)};
  }

 private:
  int64_t value_;
};

tensorpack::DataFlowPtr piped_without_using_declarations() {
  return Constant(5) | tensorpack::batch(3);
}

}  // namespace outside

namespace tensorpack::test {
namespace {

using testing::ElementsAre;

TEST(DataPointTest, AComponentThatIsNotThereIsAnError) {
  DataPoint point = {at::ones({2}), at::zeros({})};
  EXPECT_TRUE(point[1].equal(at::zeros({})));
  EXPECT_ERROR(point[2], "[DataPoint] there is no component 2: the datapoint has 2. Count from 0.");
  EXPECT_ERROR(std::as_const(point)[2], "there is no component 2");
  EXPECT_ERROR(point[-1], "the datapoint has 2");
}

TEST(DataPointTest, AFunctionThatTakesTooMuchOfADatapointIsToldWhichOne) {
  const auto flow = numbers(3) | map([](DataPoint p) { return DataPoint{p[1]}; });
  EXPECT_ERROR(flow->next(),
               "[map] datapoint 0 of the pass: [DataPoint] there is no component 1: the datapoint "
               "has 1. Count from 0.");
}

TEST(DataPointTest, IsMadeOfAVectorOfTensorsAndGivesIt) {
  const at::Tensor tensor = at::ones({2});
  const DataPoint point = std::vector<at::Tensor>{tensor, tensor};
  const std::vector<at::Tensor>& components = point.components();
  EXPECT_EQ(components.size(), 2);
  EXPECT_EQ(at::stack(point.components()).size(0), 2);
  const auto twice = numbers(1) | map([](const DataPoint& p) {
                       return std::vector<at::Tensor>{p[0], p[0]};
                     });
  EXPECT_EQ(twice->size(), 1);
  EXPECT_EQ(twice->next()->size(), 2);
}

TEST(DataFlowTest, UserFlowJoinsThePipe) {
  const auto flow = outside::piped_without_using_declarations();
  EXPECT_FALSE(flow->size());
  EXPECT_EQ(flow->next()->at(0).sizes(), (std::vector<int64_t>{3, 2}));
}

TEST(DataFlowTest, AnyCallableIsAStage) {
  int calls = 0;
  const auto count_calls = [&calls, witness = std::make_unique<int>(0)](DataFlowPtr flow) {
    ++calls;
    return flow;
  };
  DataFlowPtr flow = numbers(3) | count_calls | batch(3);
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(values(*flow), ElementsAre(0, 1, 2));
}

TEST(DataFlowTest, StageCanBeUsedTwice) {
  const Stage pairs = batch(2);
  const auto a = numbers(2) | pairs;
  const auto b = numbers(4) | pairs;
  EXPECT_EQ(a->size(), 1);
  EXPECT_EQ(b->size(), 2);
}

TEST(DataFlowTest, PointerToADerivedFlowJoinsThePipe) {
  const auto flow = std::make_unique<FromList>(numbers(2)) | batch(2);
  EXPECT_THAT(values(*flow), ElementsAre(0, 1));
}

TEST(DataFlowTest, APassIsARange) {
  auto flow = numbers(3);
  flow.next();
  std::vector<int64_t> seen;
  for (DataPoint& p : datapoints(flow)) seen.push_back(p[0].item<int64_t>());
  EXPECT_THAT(seen, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace tensorpack::test
