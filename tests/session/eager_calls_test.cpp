// SPDX-License-Identifier: Apache-2.0
// Functions of ops that ask other sessions, while other threads prepare ops.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <latch>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/session/session.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using Function = std::function<at::Tensor(const at::Tensor&)>;

Op define(Graph& graph, const std::string& name, const Function& function) {
  return graph.define({.name = name,
                       .inputs = {{.name = "x", .shape = {-1}}},
                       .body = [function](const std::vector<at::Tensor>& inputs) -> NamedTensors {
                         return {{"y", function(inputs[0])}};
                       }});
}

double run(Session& session, const Op& op, int64_t size = 1) {
  return session.run(op, {"y"}, {{"x", at::ones({size})}})[0][0].item<double>();
}

// What another thread does meanwhile; false if it waits for this one.
bool is_done(const std::future<double>& result) {
  return result.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
}

// The eager function holds the lock of its graph. Who prepares may wait for that.
TEST(EagerCallsTest, AFunctionMayAskASessionWhileAnotherThreadPrepares) {
  Graph teachers, students;
  Session teacher(teachers), eager(students, {.executor = ExecutorKind::kEager});
  const Op twice = define(teachers, "twice", [](const at::Tensor& x) { return x * 2; });
  const Op student =
      define(students, "student", [&](const at::Tensor& x) { return x + run(teacher, twice); });
  const PreparationLock preparing = lock_preparation();
  auto result = std::async(std::launch::async, [&] { return run(eager, student); });
  ASSERT_TRUE(is_done(result));
  EXPECT_EQ(result.get(), 3);
}

// As one that waits for a MultiThreadAsyncPredictor does.
TEST(EagerCallsTest, AFunctionThatIsRecordedMayWaitForAThreadThatPredicts) {
  Graph teachers, students;
  Session teacher(teachers);
  const Op twice = define(teachers, "twice", [](const at::Tensor& x) { return x * 2; });
  const Op student = define(students, "student", [&](const at::Tensor& x) {
    return x + std::async(std::launch::async, [&] { return run(teacher, twice); }).get();
  });
  Session session(students, {.verify = false});
  EXPECT_EQ(run(session, student), 3);
}

// Also when it needs no recording any more, eager steps do not wait for threads that prepare.
TEST(EagerCallsTest, AnOpOfManyShapesRunsWhileAnotherThreadPrepares) {
  Graph graph;
  Session session(graph);
  const Op op = define(graph, "op", [](const at::Tensor& x) { return x + 1; });
  const auto shapes = static_cast<int64_t>(ProgramExecutor::kMostRecordings) + 1;
  for (int64_t n = 1; n <= shapes; ++n) run(session, op, n);
  const PreparationLock preparing = lock_preparation();
  auto result = std::async(std::launch::async, [&] {
    // Without waiting for the lock until patience ends.
    const auto begun = std::chrono::steady_clock::now();
    run(session, op, shapes + 1);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  });
  ASSERT_TRUE(is_done(result));
  EXPECT_LT(result.get(), 4);
}

// Functions in a ring, each of which asks the next one's graph while its own is locked. They would
// wait for ever.
class RingTest : public testing::TestWithParam<bool> {};

TEST_P(RingTest, IsAnErrorOfOneOfThem) {
  constexpr size_t kSize = 3;
  const bool first_is_recorded = GetParam();
  std::array<Graph, kSize> graphs;
  std::array<std::optional<Session>, kSize> sessions;
  std::array<Op, kSize> plain, ask;
  std::array<std::atomic<bool>, kSize> is_first_call = {};
  std::latch all_have_locked(kSize);
  for (size_t i = 0; i < kSize; ++i) {
    const bool is_recorded = first_is_recorded && i == 0;
    sessions[i].emplace(graphs[i], SessionOptions{.executor = is_recorded ? ExecutorKind::kReplay
                                                                          : ExecutorKind::kEager});
    plain[i] = define(graphs[i], "plain", [](const at::Tensor& x) { return x * 2; });
  }
  for (size_t i = 0; i < kSize; ++i) {
    ask[i] = define(graphs[i], "ask", [&, i, next = (i + 1) % kSize](const at::Tensor& x) {
      if (is_first_call[i].exchange(false)) all_have_locked.arrive_and_wait();
      return x + sessions[next]->run(plain[next], {"y"}, {{"x", at::ones({1})}})[0];
    });
  }
  for (std::atomic<bool>& is_first : is_first_call) is_first = true;
  std::vector<std::future<double>> results;
  for (size_t i = 0; i < kSize; ++i) {
    results.push_back(std::async(std::launch::async, [&, i] { return run(*sessions[i], ask[i]); }));
  }
  size_t errors = 0;
  for (std::future<double>& result : results) {
    try {
      EXPECT_EQ(result.get(), 3);
    } catch (const Error& error) {
      ++errors;
      EXPECT_NE(std::string(error.what()).find("both would wait for ever"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(errors, 1U);
}

INSTANTIATE_TEST_SUITE_P(All, RingTest, testing::Bool());

}  // namespace
}  // namespace tensorpack
