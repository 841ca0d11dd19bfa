// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/batch.h"

#include <gmock/gmock.h>

#include "tensorpack/dataflow/map.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(BatchTest, StacksEveryComponentAndDropsTheTail) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < 5; ++i) points.push_back({torch::full({2, 3}, i), torch::tensor(i)});
  const auto flow = FromList(points) | batch(2);
  EXPECT_EQ(flow->size(), 2);
  const auto first = flow->next();
  EXPECT_TRUE(same(*first, {torch::stack({points[0][0], points[1][0]}), torch::tensor({0, 1})}));
  EXPECT_TRUE(flow->next());
  EXPECT_FALSE(flow->next());
}

TEST(BatchTest, RemainderYieldsTheTail) {
  const auto flow = numbers(5) | batch(2, {.remainder = true});
  EXPECT_EQ(flow->size(), 3);
  flow->next();
  flow->next();
  const auto tail = flow->next();
  EXPECT_TRUE(same(*tail, {torch::tensor({4})}));
  EXPECT_EQ(tail->at(0).storage().nbytes(), sizeof(int64_t)) << "holds the memory of a full batch";
  EXPECT_EQ((numbers(4) | batch(2, {.remainder = true}))->size(), 2);
}

TEST(BatchTest, KeepsEveryTypeAndEmptyShapes) {
  for (const auto type :
       {torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong, torch::kHalf,
        torch::kBFloat16, torch::kFloat, torch::kDouble, torch::kBool, torch::kComplexFloat}) {
    const auto a = torch::ones({2}, type);
    const auto b = torch::zeros({2}, type);
    const auto flow = FromList({{a}, {b}}) | batch(2);
    EXPECT_TRUE(same(*flow->next(), {torch::stack({a, b})})) << type;
  }
  const auto flow = FromList({{torch::empty({0, 3})}, {torch::empty({0, 3})}}) | batch(2);
  EXPECT_EQ(flow->next()->at(0).sizes(), (std::vector<int64_t>{2, 0, 3}));
}

// Whatever does not lie in memory as plain bytes must take the way through operators.
TEST(BatchTest, TakesStridedConjugatedAndNegatedTensors) {
  const auto base = torch::arange(6).reshape({2, 3});
  const auto complex = torch::complex(torch::ones({2}), torch::full({2}, 3.0F));
  const auto check = [](const at::Tensor& a, const at::Tensor& b) {
    const auto flow = FromList({{a}, {b}}) | batch(2);
    EXPECT_TRUE(same(*flow->next(), {torch::stack({a, b})}));
  };
  check(base.t(), base.t() + 1);
  check(base.t().contiguous(), base.t());
  check(complex, torch::conj(complex));
  check(torch::imag(torch::conj(complex)), torch::ones({2}));
  check(torch::ones({1}).expand({4}), torch::zeros({4}));
}

TEST(BatchTest, ResultNeverRequiresGradients) {
  const auto leaf = torch::ones({2}, torch::requires_grad());
  const auto flow = FromList({{leaf, leaf.t()}, {leaf, leaf.t()}}) | batch(2);
  const auto point = flow->next();
  for (const auto& t : *point) EXPECT_FALSE(t.requires_grad());
}

TEST(BatchTest, BatchesDoNotShareMemory) {
  const auto flow = numbers(4) | batch(2);
  const auto first = flow->next();
  const auto second = flow->next();
  second->at(0).zero_();
  EXPECT_TRUE(same(*first, {torch::tensor({0, 1})}));
}

TEST(BatchTest, DifferentShapesNameComponentShapesAndIndex) {
  const auto flow = FromList({{torch::ones({1}), torch::ones({2, 3})},
                              {torch::ones({1}), torch::ones({2, 3})},
                              {torch::ones({1}), torch::ones({3, 2})}}) |
                    batch(3);
  EXPECT_THAT([&] { flow->next(); },
              ThrowsMessage<Error>(AllOf(HasSubstr("[batch] component 1 has shape [2, 3]"),
                                         HasSubstr("[3, 2] in datapoint 2"))));
}

TEST(BatchTest, AnErrorTellsWhereInThePassTheBatchBegins) {
  for (const std::optional<double> padding : {std::optional<double>(), std::optional(0.0)}) {
    const auto flow = numbers(10) | map([](DataPoint p) {
                        return p[0].item<int64_t>() == 8 ? DataPoint{p[0], p[0]} : p;
                      }) |
                      batch(3, {.padding = padding});
    flow->start(1);
    EXPECT_TRUE(flow->next());
    EXPECT_EQ(flow->skip(1), 1);
    EXPECT_THAT([&] { flow->next(); },
                ThrowsMessage<Error>(AllOf(HasSubstr("datapoint 2 has 2"),
                                           HasSubstr("begins with datapoint 6 of the pass"))));
  }
}

TEST(BatchTest, DifferentTypesAndCountsAreErrors) {
  const auto types = FromList({{torch::ones({1})}, {torch::ones({1}, torch::kLong)}}) | batch(2);
  EXPECT_THAT([&] { types->next(); },
              ThrowsMessage<Error>(AllOf(HasSubstr("Float"), HasSubstr("Long in datapoint 1"))));
  const auto counts = FromList({{torch::ones({1})}, {}}) | batch(2);
  EXPECT_THAT([&] { counts->next(); },
              ThrowsMessage<Error>(HasSubstr("1 component and datapoint 1 has 0")));
  const auto undefined = FromList({{at::Tensor()}}) | batch(1);
  EXPECT_THAT([&] { undefined->next(); }, ThrowsMessage<Error>(HasSubstr("undefined tensor")));
}

TEST(BatchTest, TooFewDatapointsIsAnErrorWhereThePipeIsBuilt) {
  EXPECT_THAT([] { numbers(3) | batch(4); },
              ThrowsMessage<Error>(AllOf(HasSubstr("3 datapoints"), HasSubstr("batch of 4"),
                                         HasSubstr("{.remainder = true}"))));
  EXPECT_NO_THROW(numbers(3) | batch(4, {.remainder = true}));
  EXPECT_THAT([] { batch(0); }, ThrowsMessage<Error>(HasSubstr("got 0")));
}

TEST(BatchTest, ErrorInTheFlowDoesNotSpoilTheNextBatch) {
  int calls = 0;
  const auto flow = numbers(6) | map([&](DataPoint p) {
                      if (calls++ == 1) throw std::runtime_error("bad file");
                      return p;
                    }) |
                    batch(2);
  EXPECT_THROW(flow->next(), std::runtime_error);
  EXPECT_TRUE(same(*flow->next(), {torch::tensor({2, 3})}));
}

}  // namespace
}  // namespace tensorpack::test
