// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <latch>
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

Op define_twice(Graph& graph) {
  return define_on_x(
      graph,
      [](const at::Tensor& x) -> NamedTensors {
        return {{"y", x * 2}};
      },
      "twice");
}

// What a session gives for another op, asked on another thread.
float twice_two(Session& session, const Op& twice) {
  const auto ask = [&] { return session.run(twice, {"y"}, {{"x", at::full({1, 3}, 2.0F)}}); };
  return std::async(std::launch::async, ask).get()[0].sum().item<float>();
}

class RunsOnTwoThreads : public testing::TestWithParam<ExecutorKind> {};

INSTANTIATE_TEST_SUITE_P(All, RunsOnTwoThreads,
                         testing::Values(ExecutorKind::kReplay, ExecutorKind::kEager),
                         [](const testing::TestParamInfo<ExecutorKind>& info) {
                           return info.param == ExecutorKind::kReplay ? "Replay" : "Eager";
                         });

TEST_P(RunsOnTwoThreads, ABatchMayBeMadeByAThreadThatRunsOps) {
  Graph graph;
  const Op twice = define_twice(graph);
  Session* session = nullptr;
  const Op sum = graph.define({
      .name = "sum",
      .inputs = {{"n", {}}},
      .body = [](const Tensors& in) -> NamedTensors {
        return {{"sum", in[0] + 1}};
      },
      .feeder = [&] { return Tensors{at::full({}, twice_two(*session, twice))}; },
  });
  Session own(graph, {.executor = GetParam()});
  session = &own;
  for (const Op& op : {sum, Op::group("group", {sum}), Op::parallel("parallel", {sum})}) {
    EXPECT_EQ(own.run(op, {"sum"})[0].item<float>(), 13) << op.name();
  }
}

TEST_P(RunsOnTwoThreads, AHostFunctionMayWaitForAThreadThatRunsOps) {
  Graph graph;
  const Op twice = define_twice(graph);
  Session session(graph, {.executor = GetParam()});
  float seen = 0;
  const Op ask = Op::host("ask", [&] { seen = twice_two(session, twice); });
  session.run(Op::group("group", {twice, ask, twice}), {"y"}, {{"x", at::zeros({1, 3})}});
  EXPECT_EQ(seen, 12);
}

// A network that teaches another is asked while that one is recorded, and by other threads.
TEST(ThreadsTest, ASessionMayBeAskedWhileAnotherPrepares) {
  Graph teacher_graph, graph;
  const Op twice = define_twice(teacher_graph);
  Session teacher(teacher_graph);
  std::atomic<bool> stop = false;
  const auto ask = [&](int64_t rows) {
    return teacher.run(twice, {"y"}, {{"x", at::ones({rows, 3})}})[0];
  };
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x + ask(x.size(0)).detach()}};
  });
  Session session(graph);
  std::jthread other([&] {
    for (int64_t rows = 1; !stop; rows = 1 + rows % 40) ask(rows);
  });
  for (int64_t rows = 1; rows <= 30; ++rows) {
    EXPECT_EQ(session.run(op, {"y"}, {{"x", at::ones({rows, 3})}})[0].mean().item<float>(), 3);
  }
  stop = true;
}

// Other threads change their variables between the writes of a function that is recorded.
TEST(ThreadsTest, VariablesDoNotChangeWhileAnOpIsPrepared) {
  Graph graph;
  const at::Tensor step = graph.global_step().tensor;
  std::atomic<bool> counts = false, stop = false;
  std::atomic<int> changes = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const auto before = *step.data_ptr<int64_t>();
    for (int i = 0; counts && i < 200; ++i) std::this_thread::yield();
    if (*step.data_ptr<int64_t>() != before) ++changes;
    return {{"y", x * 2}};
  });
  Session session(graph);
  std::jthread counter([&] {
    while (!stop) {
      {
        const auto lock = graph.lock_variables();
        ++*step.data_ptr<int64_t>();
      }
      counts = true;
      std::this_thread::yield();
    }
  });
  while (!counts) std::this_thread::yield();
  for (int64_t rows = 1; rows <= 20; ++rows) session.run(op, {"y"}, {{"x", batch_of(rows)}});
  stop = true;
  EXPECT_EQ(changes, 0);
}

TEST(ThreadsTest, SessionsThatAreNotExclusiveRunAtTheSameTime) {
  Graph graph;
  std::latch both(2);
  const Op op =
      graph.define({.name = "meet", .inputs = {{"x", {}}}, .body = [&](const Tensors& in) {
                      if (in[0].item<float>() == 1) both.arrive_and_wait();
                      return NamedTensors();
                    }});
  const SessionOptions options{.executor = ExecutorKind::kEager, .exclusive = false};
  Session first(graph, options), second(graph, options);
  std::jthread other([&] { first.run(op, {}, {{"x", at::ones({})}}); });
  second.run(op, {}, {{"x", at::ones({})}});
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
