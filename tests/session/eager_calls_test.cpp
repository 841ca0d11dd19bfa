// SPDX-License-Identifier: Apache-2.0
// Functions of ops that ask other sessions, while other threads prepare ops.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

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

bool another_thread_prepares() { return !try_lock_preparation(std::chrono::milliseconds(0)); }

// The eager function holds the lock of its graph, for which the other thread waits, which holds
// that of preparing.
TEST(EagerCallsTest, AFunctionMayAskASessionWhileAnotherThreadPreparesAnOpOfItsGraph) {
  Graph teachers, students;
  Session teacher(teachers);
  const Op twice = define(teachers, "twice", [](const at::Tensor& x) { return x * 2; });
  std::promise<void> is_called;
  std::atomic<bool> waits = false;
  const Op student = define(students, "student", [&](const at::Tensor& x) {
    if (!waits.exchange(true)) return x;  // the trial when it is built
    is_called.set_value();
    while (!another_thread_prepares()) std::this_thread::yield();
    return x + run(teacher, twice);
  });
  const Op other = define(students, "other", [](const at::Tensor& x) { return x + 1; });
  Session eager(students, {.executor = ExecutorKind::kEager});
  Session recorded(students);
  std::jthread preparing([&, called = is_called.get_future().share()] {
    called.wait();
    EXPECT_EQ(run(recorded, other), 2);
  });
  EXPECT_EQ(run(eager, student), 3);
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
  const auto result = std::async(std::launch::async, [&] { return run(session, op, shapes + 1); });
  EXPECT_EQ(result.wait_for(std::chrono::seconds(3)), std::future_status::ready);
}

}  // namespace
}  // namespace tensorpack
