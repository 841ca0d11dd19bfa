// SPDX-License-Identifier: Apache-2.0
// Copies of weights that updates write, in captured trainings.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tensorpack/session/session.h"
#include "tests/cuda/copying_training.h"
#include "tests/cuda/device.h"
#include "tests/session/models.h"

namespace tensorpack::test {
namespace {

class CapturedCopiesTest : public CudaTest {
 protected:
  static void expect_same(const cuda::StepOfTraining& step, const PassSwitches& fusion = {}) {
    cuda::expect_same_training(c10::Device(at::kCUDA, 0), fusion, make_cuda_lowering, step);
  }
};

TEST_F(CapturedCopiesTest, TrainingGivesTheBitsOfTrainingWithout) {
  expect_same([](cuda::CopyingTraining& training, int i) { return training.train(i); });
}

TEST_F(CapturedCopiesTest, TrainingGivesTheBitsOfTrainingWithoutWhereResultsAreMadeAgain) {
  expect_same([](cuda::CopyingTraining& training, int i) { return training.train(i); },
              {.recompute = Recompute::kAlways});
}

TEST_F(CapturedCopiesTest, TrainingGoesOnFromWhatIsAssigned) { expect_same(cuda::assign_between); }

TEST_F(CapturedCopiesTest, TrainingGoesOnFromWhatIsWrittenInPlace) {
  expect_same(cuda::write_between);
}

TEST_F(CapturedCopiesTest, TrainingGoesOnFromWhatAnotherOpWrote) {
  expect_same(cuda::run_another_op_between);
}

TEST_F(CapturedCopiesTest, TwoOpsTrainInTurns) { expect_same(cuda::train_in_turns); }

TEST_F(CapturedCopiesTest, ProgramsForOtherFetchesTrainInTurns) {
  expect_same(cuda::fetch_in_turns);
}

// Of any program, with or without copies: others may keep some.
TEST_F(CapturedCopiesTest, LaunchesCountTheirWrites) {
  Graph graph({.device = at::kCUDA});
  const Op op = define_regression(graph);
  Session session(graph, {.verify_again = false});  // which counts writes, too
  for (int i = 0; i < 5; ++i) session.run(op, {"cost"}, {{"x", batch_of(4)}});
  const at::Tensor& written = graph.variables().at("W").tensor;
  const at::Tensor& read = graph.variables().at("learning_rate").tensor;
  const int64_t before = written._version(), before_of_read = read._version();
  session.run(op, {"cost"}, {{"x", batch_of(4)}});
  EXPECT_EQ(written._version(), before + 1);
  EXPECT_EQ(read._version(), before_of_read);
}

}  // namespace
}  // namespace tensorpack::test
