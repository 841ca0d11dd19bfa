// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <thread>

#include "tensorpack/parallel/scaled_sum.h"
#include "tensorpack/parallel/tower_exchange.h"
#include "tensorpack/session/lowering.h"
#include "tests/parallel/towers.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using Tensors = std::vector<at::Tensor>;

// Each tower brings what `tensors` gives it, and gets the averages.
std::vector<Tensors> exchange(ExchangeGroup& group, int towers,
                              const std::function<Tensors(int tower)>& tensors) {
  std::vector<Tensors> averages(static_cast<size_t>(towers));
  std::vector<std::thread> threads;
  group.start();
  for (int i = 0; i < towers; ++i) {
    threads.emplace_back([&, i] {
      Exchange& member = group.member(static_cast<size_t>(i));
      const Tensors given = tensors(i);
      averages[static_cast<size_t>(i)] = member.begin(0, given);
      member.end(0, averages[static_cast<size_t>(i)]);
      group.finish(static_cast<size_t>(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return averages;
}

class SharedMemoryExchangeTest : public testing::TestWithParam<int> {};

TEST_P(SharedMemoryExchangeTest, GivesEveryTowerTheAverageOfAll) {
  const int towers = GetParam();
  const auto group = make_shared_memory_exchange({.towers = static_cast<size_t>(towers)});
  for (int step = 0; step < 3; ++step) {
    const auto given = [&](int tower) {
      const at::Tensor base = at::arange(5000).to(at::kFloat) * (tower + 1 + step);
      return Tensors{
          base, base.slice(0, 0, 1).reshape({}), base.reshape({50, 100}).t(),
          base.slice(0, 0, 4900).reshape({10, 10, 7, 7}).contiguous(at::MemoryFormat::ChannelsLast),
          at::empty({0})};
    };
    const auto averages = exchange(*group, towers, given);
    for (size_t i = 0; i < given(0).size(); ++i) {
      at::Tensor expected = given(0)[i].clone();
      for (int tower = 1; tower < towers; ++tower) expected += given(tower)[i];
      expected /= towers;
      for (const Tensors& average : averages) {
        EXPECT_TRUE(at::allclose(average[i], expected)) << "tensor " << i << " step " << step;
        EXPECT_TRUE(at::equal(average[i], averages[0][i]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Towers, SharedMemoryExchangeTest, testing::Values(1, 2, 3, 7));

// Each tower adds up a share, which begins at a cache line.
TEST(SharedMemoryExchangeTest, EveryElementOfEverySizeIsAveraged) {
  for (const int towers : {2, 3}) {
    for (const int64_t shares : {1, 2, 3, 4}) {
      for (const int64_t more : {-1, 0, 1, 2}) {
        const int64_t size = shares * 64 + more;
        SCOPED_TRACE(fmt::format("{} elements, {} towers", size, towers));
        const auto group = make_shared_memory_exchange({.towers = static_cast<size_t>(towers)});
        const auto averages = exchange(*group, towers, [&](int tower) {
          return Tensors{at::arange(1, size + 1, at::kFloat) * (tower + 1)};
        });
        const at::Tensor expected = at::arange(1, size + 1, at::kFloat) * ((towers + 1) / 2.0);
        for (const Tensors& average : averages) EXPECT_TRUE(at::allclose(average[0], expected));
      }
    }
  }
}

TEST(SharedMemoryExchangeTest, ATowerThatComesAfterTheFailureOfAnotherThrows) {
  const auto group = make_shared_memory_exchange({.towers = 2});
  group->start();
  group->abort(1);
  Exchange& member = group->member(0);
  const Tensors averages = member.begin(0, Tensors{at::ones({3})});
  EXPECT_ERROR(member.end(0, averages), "another tower has failed");
}

TEST(SharedMemoryExchangeTest, AddsUpInTheOrderOfTheTowers) {
  const auto group = make_shared_memory_exchange({.towers = 3, .average = false});
  // 1e8 + 1 - 1e8 in float is 0 from left to right, and 1 in the other order.
  const std::array<float, 3> values = {1e8F, 1.F, -1e8F};
  for (int i = 0; i < 20; ++i) {
    const auto sums =
        exchange(*group, 3, [&](int tower) { return Tensors{at::full({100}, values[tower])}; });
    EXPECT_EQ(sums[1][0].sum().item<float>(), 0);
  }
}

TEST(SharedMemoryExchangeTest, WhoeverWaitsThrowsWhenAnotherFails) {
  const auto group = make_shared_memory_exchange({.towers = 2});
  group->start();
  std::thread other([&] { group->abort(1); });
  Exchange& member = group->member(0);
  const Tensors given = {at::ones({3})};
  const Tensors averages = member.begin(0, given);
  EXPECT_ERROR(member.end(0, averages), "another tower has failed");
  other.join();
  // The next step is a new one.
  const auto again = exchange(*group, 2, [](int) { return Tensors{at::ones({3})}; });
  EXPECT_TRUE(at::equal(again[1][0], at::ones({3})));
}

// As towers on GPUs of their own do; here over Gloo.
TEST(CollectiveExchangeTest, TowersAreRanksOfTheirOwn) {
  const auto group = make_collective_exchange(Devices::cpu(3).list(), /*average=*/true);
  for (int step = 0; step < 3; ++step) {
    const auto averages = exchange(*group, 3, [&](int tower) {
      return Tensors{at::full({100}, tower + step, at::kFloat),
                     at::arange(6).to(at::kFloat).reshape({2, 3}).t()};
    });
    for (const Tensors& average : averages) {
      EXPECT_TRUE(at::allclose(average[0], at::full({100}, 1.F + static_cast<float>(step))));
      EXPECT_TRUE(at::equal(average[1], at::arange(6).to(at::kFloat).reshape({2, 3}).t()));
    }
  }
}

TEST(CollectiveExchangeTest, WhoeverWaitsThrowsWhenAnotherFails) {
  const auto group = make_collective_exchange(Devices::cpu(2).list(), /*average=*/true);
  group->start();
  Exchange& member = group->member(0);
  const Tensors averages = member.begin(0, Tensors{at::ones({3})});
  std::thread other([&] { group->abort(1); });
  EXPECT_ERROR(member.end(0, averages), "a tower has failed");
  other.join();
}

TEST(AsyncExchangeTest, GivesBackWhatCameDividedByTheTowers) {
  const auto group = make_async_exchange({.towers = 4});
  const auto scaled = exchange(*group, 4, [](int tower) { return Tensors{at::full({2}, tower)}; });
  EXPECT_TRUE(at::allclose(scaled[2][0].to(at::kFloat), at::full({2}, 0.5)));
}

template <typename T>
void expect_sum(c10::ScalarType type, double tolerance) {
  const at::Tensor a = at::linspace(-3, 5, 3001).to(type);
  const at::Tensor b = at::linspace(7, 1, 3001).to(type);
  at::Tensor out = at::empty_like(a);
  scaled_sum(type, {a.data_ptr(), b.data_ptr()}, {out.data_ptr()}, 3001, 0.5);
  const at::Tensor expected = (a.to(at::kDouble) + b.to(at::kDouble)) / 2;
  EXPECT_TRUE(at::allclose(out.to(at::kDouble), expected, tolerance, tolerance));
}

TEST(ScaledSumTest, WorksOnEveryFloatingType) {
  expect_sum<float>(at::kFloat, 1e-6);
  expect_sum<double>(at::kDouble, 1e-14);
  expect_sum<c10::Half>(at::kHalf, 1e-3);
  expect_sum<c10::BFloat16>(at::kBFloat16, 8e-3);
  EXPECT_ERROR(scaled_sum(at::kInt, {nullptr}, {nullptr}, 1, 1), "type Int cannot be averaged");
}

// Where the gradients of early layers are still being computed, those of late ones are on their
// way.
TEST(OverlapTest, ExchangesBeginBeforeTheBackwardPassEnds) {
  Graph graph;
  const Op op =
      define_tower(graph, {.exchanges = true, .bucket_bytes = 1},
                   {.op_name = "step",
                    .inputs = image_inputs(),
                    .function = cost_of(mlp),
                    .body = [sgd = std::make_shared<SGD>(SGDOptions{.lr = 0.1})](
                                TowerContext& tower) { minimize(*sgd, tower.outputs()[0]); }})
          .op();
  Session session(graph);
  Trace trace = session.trace(op);
  Lowering().optimize(op, trace, {});
  std::vector<std::string> order;
  for (const Node& node : trace.nodes) {
    const std::string name = node.op_name();
    if (name.starts_with("tensorpack::exchange") || name == "aten::mm" ||
        name == "tensorpack::sgd_") {
      order.push_back(name.substr(name.find("::") + 2));
    }
  }
  const auto first_begin = std::find(order.begin(), order.end(), "exchange_begin");
  const auto last_product = std::find(order.rbegin(), order.rend(), "mm").base();
  EXPECT_LT(first_begin, last_product) << testing::PrintToString(order);
  const auto first_end = std::find(order.begin(), order.end(), "exchange_end");
  const auto last_begin = std::find(order.rbegin(), order.rend(), "exchange_begin").base();
  EXPECT_GE(first_end, last_begin) << testing::PrintToString(order);
}

}  // namespace
}  // namespace tensorpack::test
