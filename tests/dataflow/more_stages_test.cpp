// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <thread>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/cache.h"
#include "tensorpack/dataflow/combine.h"
#include "tensorpack/dataflow/fixed_size.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/inspect.h"
#include "tensorpack/dataflow/locally_shuffle.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shard.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/dataflow/take.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/dataflow/matchers.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

FromList lengths(std::vector<int64_t> sizes) {
  std::vector<DataPoint> points;
  for (const int64_t size : sizes) points.push_back({torch::arange(size)});
  return FromList(std::move(points));
}

TEST(MapComponentTest, WithoutAPlaceTakesTheFirstComponent) {
  const auto negate = [](const torch::Tensor& x) { return -x; };
  DataFlowPtr flow = FromList({{torch::tensor(3), torch::tensor(4)}}) | map_component(negate);
  const auto point = flow->next();
  EXPECT_EQ((*point)[0].item<int64_t>(), -3);
  EXPECT_EQ((*point)[1].item<int64_t>(), 4);
}

// In place of Tensorpack's batches that are lists.
TEST(BatchTest, PaddedSequencesKeepTheirLengthsBesideThem) {
  const auto with_length = [](const DataPoint& p) { return datapoint(p[0], number(p[0].size(0))); };
  DataFlowPtr flow = lengths({3, 1, 2}) | map(with_length) | batch(3, {.padding = 0});
  const auto point = flow->next();
  const torch::Tensor rows = (*point)[0];
  const torch::Tensor sizes = (*point)[1];
  EXPECT_EQ(rows.sizes(), (at::IntArrayRef{3, 3}));
  for (int64_t i = 0; i < 3; ++i) {
    const auto own = rows[i].slice(0, 0, sizes[i].item<int64_t>());
    EXPECT_TRUE(torch::equal(own, torch::arange(own.size(0)))) << i;
  }
}

// What would wait for the end of a pass asks before it.
TEST(IsEndlessTest, StagesKnowWhetherAPassNeverEnds) {
  const auto keep = [](DataPoint point) { return point; };
  const auto all = [](const DataPoint&) { return true; };
  const auto parity = [](const DataPoint& p) { return p[0].item<int64_t>() % 2; };
  const std::vector<std::pair<const char*, Stage>> stages = {
      {"batch", batch(2)},
      {"batch_by_key", batch_by_key(2, parity)},
      {"cache", cache()},
      {"filter", filter(all)},
      {"locally_shuffle", locally_shuffle(3)},
      {"map", map(keep)},
      {"map_and_batch", map_and_batch(keep, 2)},
      {"parallel_map", parallel_map(keep)},
      {"prefetch", prefetch(2)},
      {"print", print()},
      {"repeat", repeat(2)},
      {"repeat_each", repeat_each(2)},
      {"shard", shard({.rank = 0, .size = 2})},
      {"shuffle", shuffle(3)},
  };
  for (const auto& [name, stage] : stages) {
    EXPECT_FALSE((numbers(4) | stage)->is_endless()) << name;
    EXPECT_TRUE((numbers(4) | repeat() | stage)->is_endless()) << name;
    EXPECT_FALSE((numbers(4) | repeat() | take(3) | stage)->is_endless()) << name;
  }
  EXPECT_FALSE((numbers(4) | fixed_size(10))->is_endless());
}

TEST(IsEndlessTest, CombinationsEndWithTheirFlows) {
  const auto endless = [] { return numbers(4) | repeat(); };
  EXPECT_TRUE(concat({numbers(4), endless()})->is_endless());
  EXPECT_FALSE(concat({numbers(4), numbers(4)})->is_endless());
  EXPECT_TRUE(join({endless(), endless()})->is_endless());
  EXPECT_FALSE(join({numbers(4), endless()}, {.shortest = true})->is_endless());
  EXPECT_TRUE(random_choose({endless(), endless()})->is_endless());
  EXPECT_FALSE(random_choose({numbers(4), endless()})->is_endless());
}

// As Tensorpack's function that returns None.
TEST(MapComponentTest, AnUndefinedTensorDropsTheDatapoint) {
  const auto odd_ones = [](const at::Tensor& t) {
    return t.item<int64_t>() % 2 == 1 ? t * 10 : at::Tensor();
  };
  std::vector<int64_t> mapped;
  const std::string log = stdout_of([&] {
    const auto flow = numbers(6) | map_component(0, odd_ones);
    EXPECT_EQ(flow->size(), 6);
    mapped = values(*flow);
  });
  EXPECT_THAT(mapped, ElementsAre(10, 30, 50));
  EXPECT_THAT(log, HasSubstr("[map_component] the function returned an undefined tensor"));

  const auto told = [&](at::Tensor t) {
    t = odd_ones(t);
    return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
  };
  const auto flow = numbers(6) | map_component(0, told);
  EXPECT_EQ(flow->size(), std::nullopt);
  EXPECT_EQ(flow->skip(2), 2);
  EXPECT_THAT(values(*flow), ElementsAre(50));
}

// Yields 0, 1, 2, ... in memory of which it has as many as `buffers`.
class Reusing final : public DataFlow {
 public:
  using View = std::function<at::Tensor(const at::Tensor&)>;
  explicit Reusing(
      int64_t buffers = 1, View view = [](const at::Tensor& t) { return t; })
      : view_(std::move(view)) {
    for (int64_t i = 0; i < buffers; ++i) buffers_.push_back(torch::zeros({4}, torch::kLong));
  }
  void start(int64_t /*pass*/) override { next_ = 0; }
  std::optional<DataPoint> next() override {
    if (next_ == 40) return std::nullopt;
    at::Tensor& buffer = buffers_[next_ % buffers_.size()];
    buffer.fill_(next_++);
    return DataPoint{view_(buffer)};
  }

 private:
  View view_;
  std::vector<at::Tensor> buffers_;
  int64_t next_ = 0;
};

std::vector<Stage> stages_that_keep() {
  const auto same_point = [](DataPoint point) { return point; };
  return {prefetch(5),
          parallel_map(same_point, {.threads = 2, .capacity = 5}),
          map_and_batch(same_point, 5, {.threads = 2}),
          shuffle(5),
          locally_shuffle(5),
          cache(),
          batch(5, {.padding = 0}),
          batch_by_key(5, [](const DataPoint&) { return 0; })};
}

TEST(ReuseTest, ABufferThatIsYieldedAgainIsAnErrorOfStagesThatKeepDatapoints) {
  const Reusing::View views[] = {[](const at::Tensor& t) { return t; },
                                 [](const at::Tensor& t) {
                                   return t.view({2, 2});
                                 },
                                 [](const at::Tensor& t) { return t.detach(); },
                                 [](const at::Tensor& t) { return t.narrow(0, 1, 2); }};
  for (const Reusing::View& view : views) {
    for (const Stage& stage : stages_that_keep()) {
      for (const int64_t buffers : {1, 3}) {
        const auto flow = Reusing(buffers, view) | stage;
        EXPECT_ERROR(values(*flow), "was written to after it was yielded, and is yielded again");
        EXPECT_ERROR(values_of_pass(*flow, 1), "yield its clone()");
      }
    }
  }
}

TEST(ReuseTest, WhoeverCopiesAtOnceMayHaveTheBufferAgain) {
  const auto plus_one = [](DataPoint point) { return DataPoint{point[0] + 1}; };
  const auto flow = Reusing() | map(plus_one) | batch(2) | prefetch(3);
  EXPECT_THAT(values(*flow), SizeIs(4 * 40));
  const auto batched = Reusing() | batch(40);
  EXPECT_EQ((*batched->next())[0].sum().item<int64_t>(), 4 * 780);
}

TEST(ReuseTest, PartsOfABufferThatAreNotRewrittenStay) {
  auto rows = FromGenerator([]() -> Generator<DataPoint> {
    const at::Tensor buffer = torch::zeros({40, 2}, torch::kLong);
    for (int64_t i = 0; i < 40; ++i) {
      buffer[i].fill_(i);
      const at::Tensor row = buffer[i];
      co_yield datapoint(row);
      const at::Tensor again = buffer[0];
      co_yield datapoint(again);
    }
  });
  EXPECT_THAT(values(*(std::move(rows) | prefetch(4))), SizeIs(160));
}

TEST(ReuseTest, WhatTheConsumerWritesIsItsOwnAffair) {
  const auto in_place = [](DataPoint point) {
    point[0].add_(1);
    return point;
  };
  const auto fresh = [](DataPoint point) { return DataPoint{point[0].clone()}; };
  const auto flow = numbers(40) | map(fresh) | prefetch(4) | map(in_place) | shuffle(5) |
                    map(in_place) | batch(2, {.padding = 0});
  EXPECT_THAT(values(*flow), SizeIs(40));
}

// Data that is read before a training has settled its seed is other data.
TEST(CacheTest, IsFilledAgainWhenTheSeedIsSettled) {
  const auto flow = numbers(30) | shuffle() | cache();
  TrainingSeed seed;
  seed.settle(77);
  const auto of_training = [&] {
    const SeedScope scope(seed);
    return values_of_pass(*flow, 0);
  };
  const auto looked_at = values(*flow);
  const auto settled = of_training();
  EXPECT_NE(settled, looked_at);
  EXPECT_EQ(of_training(), settled);
}

// A stage in front of it starts all flows when it is made: before the training has its seed.
TEST(CacheTest, ReadsNothingBeforeItIsAsked) {
  int64_t read = 0;
  const auto counted = [&](DataPoint point) {
    ++read;
    return point;
  };
  const auto flow = numbers(5) | map(counted) | cache() | repeat();
  flow->start(0);
  EXPECT_EQ(read, 0);
  values(*flow, 12);
  EXPECT_EQ(read, 5);
}

TEST(BatchTest, PaddingFillsUpToTheLargest) {
  const auto flow = lengths({1, 3, 2}) | batch(3, {.padding = -1});
  EXPECT_TRUE(
      same(*flow->next(), {torch::tensor({{0, -1, -1}, {0, 1, 2}, {0, 1, -1}}, torch::kLong)}));
  const auto wrong =
      FromList({{torch::ones({2})}, {torch::ones({2, 2})}}) | batch(2, {.padding = 0});
  EXPECT_ERROR(wrong->next(), "1 dimension in datapoint 0");
}

TEST(BatchTest, ByShapeWaitsForEqualShapes) {
  const auto flow = lengths({1, 2, 1, 3, 2}) | batch_by_shape(2);
  EXPECT_EQ(flow->next()->at(0).sizes(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(flow->next()->at(0).sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_FALSE(flow->next());
}

TEST(BatchTest, ByKeyKeepsTheRestIfAsked) {
  const auto parity = [](const DataPoint& p) { return p[0].item<int64_t>() % 2; };
  const auto flow = numbers(7) | batch_by_key(3, parity, {.remainder = true});
  EXPECT_THAT(values(*flow), ElementsAre(0, 2, 4, 1, 3, 5, 6));
  EXPECT_THAT(values_of_pass(*(numbers(7) | batch_by_key(3, parity)), 0),
              ElementsAre(0, 2, 4, 1, 3, 5));
}

TEST(MapTest, ComponentFilterAndSelect) {
  const auto pairs = [] {
    return FromList({{torch::tensor(1), torch::tensor(10)}, {torch::tensor(2), torch::tensor(20)}});
  };
  EXPECT_THAT(
      values(*(pairs() | map_component(1, [](at::Tensor t) { return t + 1; }) | select({1}))),
      ElementsAre(11, 21));
  EXPECT_THAT(values(*(pairs() | select({1, 0, 1}))), ElementsAre(10, 20));
  EXPECT_THAT(
      values(*(numbers(5) | filter([](const DataPoint& p) { return p[0].item<int64_t>() > 2; }))),
      ElementsAre(3, 4));
  EXPECT_ERROR((pairs() | select({2}))->next(), "there is no component 2: the datapoint has 2");
}

TEST(MapTest, SkippedErrorsAreCountedInTheLog) {
  const auto flow = numbers(4) | map(
                                     [](DataPoint p) {
                                       TP_CHECK(p[0].item<int64_t>() != 2, "decode", "no JPEG.");
                                       return p;
                                     },
                                     {.on_error = OnError::kSkip});
  const std::string log = stdout_of([&] { EXPECT_THAT(values(*flow), ElementsAre(0, 1, 3)); });
  EXPECT_THAT(log,
              HasSubstr("[map] datapoint 2 of the pass was left out, 1 so far: [decode] no JPEG."));
}

TEST(RepeatTest, EachDatapointSeveralTimes) {
  const auto flow = numbers(3) | repeat_each(2);
  EXPECT_EQ(flow->size(), 6);
  EXPECT_THAT(values(*flow), ElementsAre(0, 0, 1, 1, 2, 2));
}

TEST(FixedSizeTest, GoesOnWhereThePassBeforeEnded) {
  const auto flow = numbers(5) | fixed_size(3);
  EXPECT_EQ(flow->size(), 3);
  EXPECT_THAT(values(*flow), ElementsAre(0, 1, 2));
  EXPECT_THAT(values_of_pass(*flow, 1), ElementsAre(3, 4, 0));
  EXPECT_THAT(values_of_pass(*flow, 2), ElementsAre(1, 2, 3));
  const auto anew = numbers(5) | fixed_size(7, {.keep_position = false});
  EXPECT_THAT(values_of_pass(*anew, 1), ElementsAre(0, 1, 2, 3, 4, 0, 1));
}

TEST(CombineTest, ConcatIsOneAfterTheOther) {
  const auto flow = concat({numbers(2), numbers(3) | take(3)});
  EXPECT_EQ(flow->size(), 5);
  EXPECT_THAT(values(*flow), ElementsAre(0, 1, 0, 1, 2));
}

TEST(CombineTest, JoinPutsComponentsTogether) {
  const auto flow = join({numbers(2), numbers(2) | map([](DataPoint p) {
                                        return DataPoint{p[0] + 10, p[0] + 20};
                                      })});
  EXPECT_TRUE(same(*flow->next(), {torch::tensor(0), torch::tensor(10), torch::tensor(20)}));
}

TEST(CombineTest, JoinOfUnequalLengthsIsAnErrorUnlessAskedFor) {
  EXPECT_ERROR(join({numbers(2), numbers(3)}), "flow 0 has 2 datapoints and flow 1 has 3");
  EXPECT_THAT(values(*join({numbers(2), numbers(3)}, {.shortest = true})), ElementsAre(0, 1));
  const auto unknown = [](int64_t count) {
    return numbers(count) | map([](DataPoint p) { return std::optional(p); });
  };
  const auto flow = join({unknown(2), unknown(3)});
  EXPECT_TRUE(flow->next());
  EXPECT_TRUE(flow->next());
  EXPECT_ERROR(flow->next(), "1 of 2 flows ended before");
}

TEST(CombineTest, RandomChooseFollowsItsWeights) {
  const auto of = [](int64_t value) { return FromList({{torch::tensor(value)}}) | repeat(); };
  OwnedList<DataFlow> flows(of(0), of(1), of(2));
  const auto flow = random_choose(std::move(flows), {.weights = {1, 3, 0}, .seed = 1});
  const auto drawn = values(*flow, 4000);
  // 3000 expected; the standard deviation is 27.
  EXPECT_NEAR(std::count(drawn.begin(), drawn.end(), 1), 3000, 140);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 2), 0);
}

TEST(CombineTest, RandomMixHasEverythingInTheOrderOfEachFlow) {
  const auto flow =
      random_mix({numbers(6), numbers(3) | map([](DataPoint p) { return DataPoint{p[0] + 100}; })},
                 {.seed = 1});
  EXPECT_EQ(flow->size(), 9);
  std::set<std::vector<int64_t>> orders;
  for (int64_t pass = 0; pass < 20; ++pass) {
    const auto mixed = values_of_pass(*flow, pass);
    orders.insert(mixed);
    std::vector<int64_t> low;
    std::copy_if(mixed.begin(), mixed.end(), std::back_inserter(low),
                 [](auto v) { return v < 100; });
    EXPECT_THAT(low, ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(mixed, SizeIs(9));
  }
  EXPECT_GT(orders.size(), 10);
  EXPECT_ERROR(random_mix({numbers(2) | repeat()}), "does not know its size");
}

TEST(LocallyShuffleTest, EachDatapointComesAsOftenAsAsked) {
  const auto flow = numbers(20) | locally_shuffle(9, {.reuse = 2, .seed = 1});
  EXPECT_EQ(flow->size(), 40);
  const auto order = values(*flow);
  for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(std::count(order.begin(), order.end(), i), 2);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
}

TEST(CacheTest, AFlowThatFillsTheMemoryIsToldOf) {
  // As large as it looks to nobody but cache().
  const torch::Tensor large = torch::zeros({1}, torch::kByte).expand({int64_t{1} << 45});
  const auto flow = FromList({{torch::zeros({1})}, {large}}) | repeat() | cache();
  const auto take_one = [&] { EXPECT_TRUE(flow->next()); };
  EXPECT_EQ(stdout_of(take_one), "");
  EXPECT_THAT(stdout_of(take_one),
              testing::HasSubstr("[cache] 32 TiB of datapoints, 2 of them, are in memory, and the "
                                 "flow goes on. If it is endless, put repeat() behind cache()."));
  EXPECT_EQ(stdout_of(take_one), "") << "once";
}

TEST(CacheTest, AsksTheFlowOnce) {
  int made = 0;
  const auto flow = numbers(5) | map([&](DataPoint p) {
                      ++made;
                      return p;
                    }) |
                    cache({.shuffle = true, .seed = 1});
  EXPECT_EQ(values_of_pass(*flow, 0), values_of_pass(*flow, 0));
  EXPECT_NE(values_of_pass(*flow, 1), values_of_pass(*flow, 2));
  EXPECT_EQ(made, 5);
}

TEST(CacheTest, OnDiskOutlivesTheFlow) {
  const TempDir dir;
  int made = 0;
  const auto count = map([&](DataPoint p) {
    ++made;
    return DataPoint{p[0], bytes("text")};
  });
  for (int run = 0; run < 2; ++run) {
    const auto flow = numbers(5) | count | cache_to_disk(dir / "cache");
    EXPECT_THAT(values_of_pass(*flow, 0), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(values_of_pass(*flow, 1), ElementsAre(0, 1, 2, 3, 4));
    EXPECT_EQ(made, 5);
  }
}

TEST(CacheTest, FailureLeavesNoFile) {
  const TempDir dir;
  const auto flow = numbers(5) | map([](DataPoint p) {
                      if (p[0].item<int64_t>() == 3) throw std::runtime_error("bad");
                      return p;
                    }) |
                    cache_to_disk(dir / "cache");
  EXPECT_THROW(flow->next(), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(dir / "cache"));
}

TEST(InspectTest, PrintShowsShapeTypeAndRange) {
  const auto flow = FromList({{torch::tensor({1.0F, 3.0F}), torch::tensor(7)}}) | repeat() |
                    print({.name = "train"});
  const std::string log = stdout_of([&] {
    flow->next();
    flow->next();
  });
  EXPECT_THAT(log, HasSubstr("train datapoint 0: {Float [2] in 1..3; Long [] = 7}"));
  EXPECT_THAT(log, testing::Not(HasSubstr("datapoint 1")));
}

TEST(InspectTest, SpeedTellsWhichStageIsSlow) {
  // The datapoints that are timed are so slow that no other stage waits as long for the processor.
  const auto slow = [](DataPoint p) {
    const bool is_timed = p[0].item<int64_t>() % detail::kSampleEvery == 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(is_timed ? 100 : 1));
    return p;
  };
  const auto flow = numbers(64) | prefetch(4) | parallel_map(slow, {.threads = 2}) | batch(4);
  const Speed speed = test_speed(*flow, {.count = 20, .warmup = 1, .progress = false});
  EXPECT_GT(speed.datapoints_per_second, 0);
  std::vector<std::string> names;
  for (const StageReport& stage : speed.stages) names.push_back(stage.name);
  EXPECT_THAT(names, ElementsAre("FromList", "prefetch", "parallel_map", "Batch"));
  EXPECT_GT(speed.stages[1].downstream_wait_seconds, 0) << "it had to wait for the slow stage";
  EXPECT_EQ(slowest_stage(*detail::stats_of(*flow))->name, "parallel_map");
}

TEST(ValueTest, BytesAndNumbersComeBack) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(bytes_view(bytes(text)), text);
  EXPECT_EQ(bytes_view(bytes("")), "");
  EXPECT_EQ(number(3).item<int64_t>(), 3);
  EXPECT_EQ(number(2.5).scalar_type(), torch::kDouble);
  EXPECT_EQ(number(true).scalar_type(), torch::kBool);
  EXPECT_THAT([] { bytes_view(torch::ones({2})); },
              ThrowsMessage<Error>(AllOf(HasSubstr("Float [2]"), HasSubstr("bytes()"))));
}

TEST(StageNamesTest, StagesAreNamedAfterWhatWasCalled) {
  const DataFlowPtr flow = FromList({{at::ones({1}), at::zeros({1})}}) |
                           map([](DataPoint point) { return point; }) |
                           map_component(0, [](at::Tensor x) { return x; }) |
                           filter([](const DataPoint&) { return true; }) | select({1});
  std::vector<std::string> names;
  for (const StageReport& stage : stage_report(*flow)) names.push_back(stage.name);
  EXPECT_THAT(names, ElementsAre("FromList", "Map", "MapComponent", "Filter", "Select"));
}

}  // namespace
}  // namespace tensorpack::test
