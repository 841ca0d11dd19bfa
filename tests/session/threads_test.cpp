// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <atomic>
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

// Dropout draws from the generator of its graph, whatever the other thread draws.
std::pair<at::Tensor, double> train_with_dropout(uint64_t seed) {
  Graph graph({.seed = seed});
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::normal(1));
    const at::Tensor cost = at::mv(at::dropout(x, 0.5, true), w).pow(2).mean();
    const at::Tensor gradient = torch::autograd::grad({cost}, {w})[0];
    at::NoGradGuard no_grad;
    w.sub_(gradient * 0.1);
    return {{"cost", cost}};
  });
  graph.finalize();
  Session session(graph);
  double last = 0;
  for (int step = 0; step < 50; ++step) {
    last = session.run(op, {"cost"}, {{"x", batch_of(2 + step % 3)}})[0].item<double>();
  }
  return {graph.variables().at("W").tensor.detach().clone(), last};
}

TEST(ThreadsTest, TwoTrainingsWithDropoutGiveTheBitsTheyGiveAlone) {
  const auto first_alone = train_with_dropout(1);
  const auto second_alone = train_with_dropout(2);
  std::pair<at::Tensor, double> first, second;
  {
    std::thread a([&] { first = train_with_dropout(1); });
    std::thread b([&] { second = train_with_dropout(2); });
    a.join();
    b.join();
  }
  EXPECT_TRUE(at::equal(first.first, first_alone.first));
  EXPECT_EQ(first.second, first_alone.second);
  EXPECT_TRUE(at::equal(second.first, second_alone.first));
  EXPECT_EQ(second.second, second_alone.second);
}

TEST(ThreadsTest, OneSessionMayBeUsedByManyThreads) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * 2}};
  });
  graph.finalize();
  Session session(graph);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor x = batch_of(1 + (i + thread) % 3, static_cast<float>(thread));
        if (!at::equal(session.run(op, {"y"}, {{"x", x}})[0], x * 2)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tensorpack
