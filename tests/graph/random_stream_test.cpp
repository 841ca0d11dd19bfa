// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/random_stream.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <malloc.h>

#include <future>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"

namespace tensorpack {
namespace {

using Tensors = std::vector<at::Tensor>;

// One draw of an operator that takes a generator, one of an operator that takes none, and one of a
// factory that takes one, but has no tensor that would say for which device.
at::Tensor draw() {
  return at::cat({at::empty({4}).uniform_(), at::rand({4}), at::normal(0., 1., {4})});
}

TEST(RandomStreamTest, OperatorsDrawFromTheGeneratorOfTheScope) {
  at::manual_seed(1);
  const at::Tensor untouched = at::rand({4});
  at::manual_seed(1);
  const at::Generator generator = make_generator(at::kCPU, 7);
  at::Tensor first, second;
  {
    const DrawFrom scope(generator);
    first = draw();
    second = draw();
  }
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_TRUE(at::equal(at::rand({4}), untouched)) << "the default generator was not used";

  const DrawFrom scope(make_generator(at::kCPU, 7));
  EXPECT_TRUE(at::equal(draw(), first));
  EXPECT_TRUE(at::equal(draw(), second));
}

TEST(RandomStreamTest, GeneratorsAreFreed) {
  make_generator(at::kCPU, 1);
  const size_t before = mallinfo2().uordblks;
  for (uint64_t seed = 0; seed < 1000; ++seed) make_generator(at::kCPU, seed);
  EXPECT_LT(mallinfo2().uordblks, before + 100'000) << "each takes more than 2,500 bytes";
}

TEST(RandomStreamTest, AGeneratorThatIsPassedWins) {
  const at::Generator own = make_generator(at::kCPU, 3);
  const at::Tensor expected = at::empty({4}).uniform_(0, 1, make_generator(at::kCPU, 3));
  const DrawFrom scope(make_generator(at::kCPU, 7));
  EXPECT_TRUE(at::equal(at::empty({4}).uniform_(0, 1, own), expected));
}

// Composite operators, kernels of their own, with a generator among their arguments and without.
Tensors draws_of_every_kind() {
  const at::Tensor x = at::full({16}, 0.5);
  return {at::rand({16}),
          at::randn({16}),
          at::randint(1000, {16}),
          at::randperm(16),
          at::rand_like(x),
          at::randn_like(x),
          at::bernoulli(x),
          at::dropout(x, 0.5, true),
          std::get<0>(at::native_dropout(x, 0.5, true)),
          at::normal(0., 1., {16}),
          at::multinomial(x, 8),
          at::empty({16}).exponential_()};
}

TEST(RandomStreamTest, ASeedGivesTheSameOnAnyThreadAndLeavesTheDefaultGeneratorAlone) {
  const auto draw = [](uint64_t seed) {
    const DrawFromSeed scope(seed);
    Tensors both = draws_of_every_kind();
    for (at::Tensor& again : draws_of_every_kind()) both.push_back(std::move(again));
    return both;
  };
  at::manual_seed(1);
  const at::Tensor untouched = at::rand({4});
  const Tensors expected = draw(7);
  at::manual_seed(1);
  std::vector<std::future<Tensors>> threads;
  for (int i = 0; i < 3; ++i) threads.push_back(std::async(std::launch::async, draw, 7));
  for (auto& thread : threads) {
    const Tensors drawn = thread.get();
    for (size_t i = 0; i < drawn.size(); ++i) EXPECT_TRUE(at::equal(drawn[i], expected[i])) << i;
  }
  EXPECT_TRUE(at::equal(at::rand({4}), untouched)) << "the default generator was used";
  const Tensors other = draw(8);
  for (size_t i = 0; i < other.size(); ++i) {
    EXPECT_FALSE(at::equal(other[i], expected[i])) << i;
  }
  const size_t kinds = expected.size() / 2;
  for (size_t i = 0; i < kinds; ++i) {
    EXPECT_FALSE(at::equal(expected[i], expected[kinds + i])) << i << " is drawn from a stream";
  }
}

TEST(RandomStreamTest, TheInnermostScopeWins) {
  const auto alone = [](const auto& make) {
    const auto scope = make();
    return draws_of_every_kind();
  };
  const auto stream = [] { return std::make_unique<DrawFrom>(make_generator(at::kCPU, 3)); };
  const auto seed = [] { return std::make_unique<DrawFromSeed>(4); };
  const auto expect_same = [](const Tensors& a, const Tensors& b) {
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
  };
  const Tensors of_stream = alone(stream);
  const Tensors of_seed = alone(seed);
  const DrawFromSeed outer(9);
  expect_same(alone(stream), of_stream);
  expect_same(alone(seed), of_seed);
  const DrawFrom of_op(make_generator(at::kCPU, 8));
  expect_same(alone(seed), of_seed);
}

TEST(RandomStreamTest, OpsOfAGraphDrawFromItsStreamsEagerlyAndRecorded) {
  const auto numbers = [](uint64_t seed, const std::string& stream) {
    Graph graph({.seed = seed});
    const Op op = graph.define({.name = "draw",
                                .body =
                                    [](const Tensors&) {
                                      return NamedTensors{{"y", draw()}};
                                    },
                                .random_stream = stream});
    const at::Tensor eager = op.run_body({}, {}).at("y");
    Graph again({.seed = seed});
    const Op recorded = again.define({.name = "draw",
                                      .body =
                                          [](const Tensors&) {
                                            return NamedTensors{{"y", draw()}};
                                          },
                                      .random_stream = stream});
    const StateGuard guard(again, {recorded.state().generator});
    Program program(record_op(again, recorded, {}).recording.trace, {"y"});
    guard.restore();
    EXPECT_TRUE(at::equal(program.run({})[0], eager));
    EXPECT_FALSE(at::equal(program.run({})[0], eager)) << "the stream goes on";
    return eager;
  };
  EXPECT_TRUE(at::equal(numbers(1, "main"), numbers(1, "main")));
  EXPECT_FALSE(at::equal(numbers(1, "main"), numbers(2, "main")));
  EXPECT_FALSE(at::equal(numbers(1, "main"), numbers(1, "tower1")));
}

TEST(RandomStreamTest, RanksDrawTheirOwnFromTheSameFirstValues) {
  const auto build = [](int rank) {
    auto graph = std::make_unique<Graph>(GraphOptions{.seed = 1, .rank = rank});
    graph->define({.name = "draw", .body = [&graph](const Tensors&) {
                     CallScope call(*graph);
                     get_variable("W", {4}, init::normal(1));
                     return NamedTensors();
                   }});
    return graph;
  };
  const auto first = build(0);
  const auto second = build(1);
  EXPECT_TRUE(at::equal(first->variables().at("W").tensor, second->variables().at("W").tensor));
  EXPECT_FALSE(at::equal(first->generators().at("main/cpu").get_state(),
                         second->generators().at("main/cpu").get_state()));
}

}  // namespace
}  // namespace tensorpack
