// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <thread>

#include "tensorpack/session/session.h"
#include "tests/session/models.h"

namespace tensorpack {
namespace {

at::Tensor train(uint64_t seed) {
  Graph graph({.seed = seed});
  const Op op = define_regression(graph);
  graph.finalize();
  Session session(graph);
  for (int step = 0; step < 20; ++step) {
    const int64_t rows = 2 + step % 3;  // three recordings, in the middle of the other's replays
    session.run(op, {"cost"}, {{"x", batch_of(rows, static_cast<float>(step))}});
  }
  return graph.variables().at("W").tensor.detach().clone();
}

TEST(ThreadsTest, TwoGraphsAreRecordedAndReplayedAtOnce) {
  const at::Tensor expected[] = {train(1), train(2)};
  at::Tensor got[2];
  {
    std::thread first([&] { got[0] = train(1); });
    std::thread second([&] { got[1] = train(2); });
    first.join();
    second.join();
  }
  EXPECT_TRUE(at::equal(got[0], expected[0]));
  EXPECT_TRUE(at::equal(got[1], expected[1]));
  EXPECT_FALSE(at::equal(got[0], got[1]));
}

}  // namespace
}  // namespace tensorpack
