// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/random_stream.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <malloc.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"

namespace tensorpack {
namespace {

using Tensors = std::vector<at::Tensor>;

// One draw of an operator that takes a generator, and one of an operator that takes none.
at::Tensor draw() { return at::cat({at::empty({4}).uniform_(), at::rand({4})}); }

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
