// SPDX-License-Identifier: Apache-2.0
// Batches of rows in memory are copied row by row to their place, whatever stages chose the rows.
#include <gmock/gmock.h>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/fixed_size.h"
#include "tensorpack/dataflow/from_tensors.h"
#include "tensorpack/dataflow/locally_shuffle.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shard.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/dataflow/take.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

FromTensors rows(int64_t count) {
  const at::Tensor images = torch::arange(count * 6).reshape({count, 2, 3}).to(torch::kFloat);
  return FromTensors({images, torch::arange(count)});
}

// Hands on the same datapoints, but not as rows.
Stage forget_rows() {
  return map([](DataPoint p) { return p; });
}

struct RowsCase {
  std::string name;
  std::function<DataFlowPtr(DataFlowPtr)> stages;
};
void PrintTo(const RowsCase& c, std::ostream* out) { *out << c.name; }

class RowsTest : public testing::TestWithParam<RowsCase> {
 protected:
  static DataFlowPtr make(bool as_rows) {
    DataFlowPtr source = std::make_unique<FromTensors>(rows(23));
    if (!as_rows) source = std::move(source) | forget_rows();
    return GetParam().stages(std::move(source)) | batch(4, {.remainder = true});
  }
};

TEST_P(RowsTest, BatchesAreThoseOfStackedDatapoints) {
  const auto gathered = make(true);
  const auto stacked = make(false);
  EXPECT_EQ(gathered->size(), stacked->size());
  for (const int64_t pass : {0, 1, 5}) {
    gathered->start(pass);
    stacked->start(pass);
    const auto expected = collect(*stacked, 40);
    const auto batches = collect(*gathered, 40);
    ASSERT_EQ(batches.size(), expected.size());
    for (size_t i = 0; i < batches.size(); ++i) EXPECT_TRUE(same(batches[i], expected[i])) << i;
  }
}

TEST_P(RowsTest, SingleDatapointsAreTheSameToo) {
  const auto of_rows = GetParam().stages(std::make_unique<FromTensors>(rows(23)));
  const auto of_points = GetParam().stages(rows(23) | forget_rows());
  for (int i = 0; i < 60; ++i) {
    const auto expected = of_points->next();
    const auto point = of_rows->next();
    ASSERT_EQ(point.has_value(), expected.has_value());
    if (point) {
      EXPECT_TRUE(same(*point, *expected));
    }
  }
}

TEST_P(RowsTest, KeepsTheContract) {
  const MakeDataFlow make_rows = [] { return make(true); };
  expect_passes_repeat(make_rows);
  expect_restarts_in_mid_pass(make_rows);
  expect_skips_as_if_read(make_rows);
  if (make(true)->size()) expect_true_size(make_rows);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, RowsTest,
    testing::ValuesIn(std::vector<RowsCase>{
        {"None", [](DataFlowPtr flow) { return flow; }},
        {"Shuffle", [](DataFlowPtr flow) { return std::move(flow) | shuffle({.seed = 1}); }},
        {"ShuffleBuffer",
         [](DataFlowPtr flow) { return std::move(flow) | shuffle(5, {.seed = 1}); }},
        {"LocallyShuffle",
         [](DataFlowPtr flow) {
           return std::move(flow) | locally_shuffle(5, {.reuse = 2, .seed = 1});
         }},
        {"Take", [](DataFlowPtr flow) { return std::move(flow) | take(9); }},
        {"Repeat",
         [](DataFlowPtr flow) { return std::move(flow) | shuffle({.seed = 1}) | repeat(3); }},
        {"RepeatForever",
         [](DataFlowPtr flow) { return std::move(flow) | shuffle({.seed = 1}) | repeat(); }},
        {"RepeatEach", [](DataFlowPtr flow) { return std::move(flow) | repeat_each(2); }},
        {"Shard", [](DataFlowPtr flow) { return std::move(flow) | shard({.rank = 1, .size = 3}); }},
        {"UnequalShard",
         [](DataFlowPtr flow) {
           return std::move(flow) | shard({.rank = 1, .size = 3, .equal = false});
         }},
        {"FixedSize",
         [](DataFlowPtr flow) { return std::move(flow) | shuffle({.seed = 1}) | fixed_size(10); }},
        {"All",
         [](DataFlowPtr flow) {
           return std::move(flow) | shard({.rank = 0, .size = 2}) | repeat(2) |
                  shuffle(7, {.seed = 1}) | take(20) | fixed_size(33);
         }},
    }),
    [](const auto& info) { return info.param.name; });

// Counts what is made of its rows.
class CountedRows final : public detail::RowFlow {
 public:
  struct Counts {
    int64_t points = 0;
    int64_t batches = 0;
  };
  explicit CountedRows(Counts& counts) : RowFlow({100, false, 0}), counts_(&counts) {}
  DataPoint row(int64_t number) const override {
    ++counts_->points;
    return {torch::tensor(number)};
  }
  DataPoint stack_rows(const std::vector<int64_t>& numbers) const override {
    ++counts_->batches;
    return {torch::tensor(numbers)};
  }

 private:
  Counts* counts_;
};

TEST(RowStagesTest, NoDatapointIsMadeOnTheWayToABatch) {
  CountedRows::Counts counts;
  const auto flow = CountedRows(counts) | shard({.rank = 1, .size = 2}) | shuffle({.seed = 1}) |
                    repeat() | locally_shuffle(20, {.seed = 2}) | fixed_size(60) | take(40) |
                    batch(10);
  EXPECT_EQ(collect(*flow).size(), 4U);
  EXPECT_EQ(counts.batches, 4);
  EXPECT_EQ(counts.points, 0);
  flow->start(1);
  EXPECT_EQ(flow->skip(3), 3);
  EXPECT_EQ(counts.batches, 4) << "what is skipped is not made";
}

TEST(RowStagesTest, TheTimeOfCopyingIsThatOfTheSource) {
  const auto flow = rows(23) | shuffle({.seed = 1}) | batch(4);
  const detail::SampleScope sample(0);
  (void)collect(*flow);
  const auto report = stage_report(*flow);
  ASSERT_EQ(report.size(), 3U);
  for (const StageReport& stage : report) EXPECT_GT(stage.busy_seconds, 0) << stage.name;
}

TEST(RowStagesTest, RowsOfAnyLayoutAreCopied) {
  const at::Tensor transposed = torch::arange(12).reshape({3, 4}).t();
  const at::Tensor conjugated = torch::view_as_complex(torch::randn({4, 3, 2})).conj();
  const at::Tensor learned = torch::randn({4, 2}, torch::requires_grad());
  const at::Tensor empty = torch::zeros({4, 0});
  const auto flow =
      FromTensors({transposed, conjugated, learned, empty}) | shuffle({.seed = 3}) | batch(4);
  const auto order = FromTensors({torch::arange(4)}) | shuffle({.seed = 3}) | batch(4);
  const at::Tensor index = order->next()->at(0);
  ASSERT_FALSE(index.equal(torch::arange(4)));
  const DataPoint batch = *flow->next();
  EXPECT_TRUE(batch[0].equal(transposed.index_select(0, index)));
  EXPECT_TRUE(batch[1].equal(conjugated.resolve_conj().index_select(0, index)));
  EXPECT_TRUE(batch[2].equal(learned.detach().index_select(0, index)));
  EXPECT_FALSE(batch[2].requires_grad());
  EXPECT_EQ(batch[3].sizes(), (std::vector<int64_t>{4, 0}));
}

}  // namespace
}  // namespace tensorpack::test
