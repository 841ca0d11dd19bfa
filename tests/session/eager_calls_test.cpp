// SPDX-License-Identifier: Apache-2.0
// Functions of ops that ask other sessions, while other threads prepare ops.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/session/session.h"

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

}  // namespace
}  // namespace tensorpack
