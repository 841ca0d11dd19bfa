// SPDX-License-Identifier: Apache-2.0
// What the CUDA-graph executor promises beyond the numbers.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <gmock/gmock.h>

#include <thread>

#include "tensorpack/cuda/capture.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/gradient_processor.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_func.h"
#include "tests/cuda/device.h"
#include "tests/cuda/little_memory.h"
#include "tests/session/models.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"
#include "tests/support/wrong_runner.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class GraphExecutorTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped()) graph_ = std::make_unique<Graph>(GraphOptions{.device = at::kCUDA});
  }
  // Enough runs to be captured and launched again.
  static constexpr int kRuns = 4;

  std::unique_ptr<Graph> graph_;
};

TEST_F(GraphExecutorTest, TrainsAsReplayDoes) {
  Graph other({.device = at::kCUDA});
  const Op op = define_regression(*graph_);
  const Op same = define_regression(other);
  Session captured(*graph_);
  Session replayed(other, {.executor = ExecutorKind::kReplay});
  for (int i = 0; i < kRuns; ++i) {
    const Feeds feeds{{"x", batch_of(4, static_cast<float>(i))}};
    EXPECT_TRUE(
        at::equal(captured.run(op, {"cost"}, feeds)[0], replayed.run(same, {"cost"}, feeds)[0]))
        << i;
  }
}

TEST_F(GraphExecutorTest, ValuesArriveOnTheHost) {
  const Op op = define_regression(*graph_);
  Session session(*graph_);
  for (int i = 0; i < kRuns; ++i) {
    for (const at::Tensor& value :
         session.run(op, {"cost", "W", "x", "cost"}, {{"x", batch_of(2)}})) {
      EXPECT_TRUE(value.device().is_cpu());
    }
  }
}

// A value may be read long after its run: later runs do not write over it.
TEST_F(GraphExecutorTest, ValuesReadLateAreThoseOfTheirRun) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * 2}};
  });
  Session session(*graph_);
  std::vector<FetchedValues> values;
  for (int i = 0; i < 20; ++i) {
    values.push_back(session.run(op, {"y"}, {{"x", at::full({1000, 3}, 1.0F * i)}}));
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(at::equal(values[i][0], at::full({1000, 3}, 2.0F * i))) << i;
  }
}

// Dropout of ones: which elements remain.
class CapturedDropout {
 public:
  explicit CapturedDropout(Graph& graph)
      : op_(define_on_x(graph,
                        [](const at::Tensor& x) -> NamedTensors {
                          return {{"y", at::dropout(x, 0.5, true)}};
                        })),
        session_(graph) {}
  at::Tensor operator()() { return session_.run(op_, {"y"}, {{"x", at::ones({100, 3})}})[0]; }

 private:
  Op op_;
  Session session_;
};

TEST_F(GraphExecutorTest, DropoutDiffersFromLaunchToLaunchAndRepeatsFromTheSeed) {
  CapturedDropout dropout(*graph_);
  at::Generator generator = graph_->generators().at("main/cuda");
  generator.set_current_seed(7);
  std::vector<at::Tensor> first;
  for (int i = 0; i < kRuns; ++i) first.push_back(dropout());
  for (int i = 1; i < kRuns; ++i) EXPECT_FALSE(at::equal(first[i - 1], first[i])) << i;
  generator.set_current_seed(7);
  for (int i = 0; i < kRuns; ++i) EXPECT_TRUE(at::equal(first[i], dropout())) << i;
}

TEST_F(GraphExecutorTest, DropoutDrawsFromTheGraphAlone) {
  CapturedDropout dropout(*graph_);
  const at::Tensor before = at::globalContext().defaultGenerator(at::kCUDA).get_state();
  for (int i = 0; i < kRuns; ++i) dropout();
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(at::kCUDA).get_state(), before));
}

// The CUDA lowering, but for one fault that shows only once the work is captured.
class WrongCapture final : public Lowering {
 public:
  void optimize(const Op& op, Trace& trace,
                const std::vector<std::string>& fetches) const override {
    cuda_->optimize(op, trace, fetches);
  }
  std::unique_ptr<ProgramRunner> make_runner(
      const Op& op, const Trace& trace, const std::vector<std::string>& fetches) const override {
    return std::make_unique<WrongOnceSettled>(cuda_->make_runner(op, trace, fetches));
  }

 private:
  std::unique_ptr<Lowering> cuda_ = make_cuda_lowering();
};

TEST_F(GraphExecutorTest, AWrongCaptureIsFoundBeforeItIsUsed) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * 2}};
  });
  ProgramExecutor executor(*graph_, {}, std::make_unique<WrongCapture>());
  EXPECT_ERROR(executor.prepare(op, {batch_of(4).cuda()}, {"y"}),
               "though every recorded operator agrees");
}

TEST_F(GraphExecutorTest, LearningRateTakesEffectOnTheNextLaunch) {
  const Op op = define_regression(*graph_);
  Session session(*graph_);
  const Variable& w = graph_->variables().at("W");
  const Feeds feeds{{"x", batch_of(2)}};
  for (int i = 0; i < kRuns; ++i) session.run(op, {}, feeds);
  graph_->variables().at("learning_rate").assign(at::zeros({}));
  const at::Tensor before = w.tensor.detach().clone();
  session.run(op, {}, feeds);
  EXPECT_TRUE(at::equal(w.tensor.detach(), before));
  graph_->variables().at("learning_rate").assign(at::full({}, 0.5));
  session.run(op, {}, feeds);
  EXPECT_FALSE(at::equal(w.tensor.detach(), before));
}

int64_t allocated_bytes() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current;
}

TEST_F(GraphExecutorTest, ABatchThatStaysInItsMemoryIsReadThere) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"sum", x.sum()}};
  });
  Session session(*graph_);
  const at::Tensor batch = at::ones({1 << 20, 3}, at::kCUDA);
  const auto sum = [&] { return session.run(op, {"sum"}, {{"x", batch}})[0].item<float>(); };
  sum();
  const int64_t before = allocated_bytes();
  sum();  // captured
  EXPECT_LT(allocated_bytes() - before, batch.nbytes() / 2);
  batch.mul_(2);
  EXPECT_EQ(sum(), 2 * batch.numel());
}

TEST_F(GraphExecutorTest, ABatchInOtherMemoryLeavesTheFirstAlone) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"sum", x.sum()}};
  });
  Session session(*graph_);
  const at::Tensor constant = at::ones({4, 3}, at::kCUDA);
  for (int i = 0; i < kRuns; ++i) session.run(op, {"sum"}, {{"x", constant}});
  const std::string log = stdout_of([&] {
    for (int i = 0; i < kRuns; ++i) {
      const at::Tensor other = at::full({4, 3}, 2.0F + i, at::kCUDA);
      EXPECT_EQ(session.run(op, {"sum"}, {{"x", other}})[0].item<float>(), 12 * (2 + i)) << i;
      EXPECT_EQ(session.run(op, {"sum"}, {{"x", constant}})[0].item<float>(), 12) << i;
    }
  });
  EXPECT_THAT(log, Not(HasSubstr("cannot be captured")));
}

TEST_F(GraphExecutorTest, AnInputWrittenInPlaceStaysAsItIsForTheCaller) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"sum", at::Tensor(x).add_(1).sum()}};
  });
  Session session(*graph_);
  const at::Tensor batch = at::zeros({4, 3}, at::kCUDA);
  for (int i = 1; i <= kRuns; ++i) {
    EXPECT_EQ(session.run(op, {"sum"}, {{"x", batch}})[0].item<float>(), 12);
    EXPECT_EQ(batch.max().item<float>(), 0);
  }
}

TEST_F(GraphExecutorTest, CastsOfWeightsAreOneKernelAndThoseOfGradientsNone) {
  SGD optimizer({.lr = 0.1});
  const Op op = graph_->define({
      .name = "train",
      .inputs = {{"x", {-1, 8}}},
      .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
        TowerContext tower(*graph_);
        const TowerFunc network = [](const at::Tensor& x) {
          at::Tensor l = x;
          for (int i = 0; i < 6; ++i) {
            l = FullyConnected("fc" + std::to_string(i), l, {.units = 8});
          }
          return l;
        };
        const at::Tensor cost = network({in[0]})[0].to(at::kFloat).square().mean();
        minimize(optimizer, cost, graph_->variables().trainable());
        return {{"cost", cost}};
      },
  });
  Session session(*graph_, {.precision = Precision::kBFloat16});
  Trace trace = session.trace(op);
  cuda::optimize(trace, {"cost"});
  const auto count = [&](const std::string& name) {
    return std::count_if(trace.nodes.begin(), trace.nodes.end(),
                         [&](const Node& node) { return node.op_name() == name; });
  };
  EXPECT_EQ(count("tensorpack::cast_together"), 1);
  EXPECT_LE(count("aten::_to_copy"), 2);  // of the input and of the result
}

// cuDNN's choice among its kernels is one of each thread.
TEST_F(GraphExecutorTest, TheFunctionIsDifferentiatedOnTheThreadThatRunsTheProgram) {
  std::thread::id thread;
  define_on_x(*graph_, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::ones());
    const at::Tensor y = x * w;
    y.register_hook([&](const at::Tensor&) { thread = std::this_thread::get_id(); });
    return {{"gradient", torch::autograd::grad({y.sum()}, {w})[0]}};
  });
  EXPECT_EQ(thread, std::this_thread::get_id());
}

TEST_F(GraphExecutorTest, NewShapesAreCapturedAgain) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"sum", x.sum()}};
  });
  Session session(*graph_);
  for (int round = 0; round < 3; ++round) {
    for (int64_t rows : {2, 5, 3}) {
      const at::Tensor x = batch_of(rows, static_cast<float>(round));
      EXPECT_NEAR(session.run(op, {"sum"}, {{"x", x}})[0].item<float>(), x.sum().item<float>(),
                  1e-4);
    }
  }
}

// The second op would need as much again if each kept memory of its own.
TEST_F(GraphExecutorTest, ProgramsShareTheirMemory) {
  const auto deep = [](const at::Tensor& x) -> NamedTensors {
    at::Tensor y = x.repeat({1, 1000});
    for (int i = 0; i < 5; ++i) y = at::sin(y) + at::cos(y);
    return {{"sum", y.sum()}};
  };
  const Op first = define_on_x(*graph_, deep, "first");
  const Op second = define_on_x(*graph_, deep, "second");
  Session session(*graph_);
  const Feeds feeds{{"x", at::ones({1000, 3})}};  // 12 MB for each intermediate result
  const auto reserved_after = [&](const Op& op) {
    for (int i = 0; i < kRuns; ++i) session.run(op, {"sum"}, feeds);
    c10::cuda::CUDACachingAllocator::emptyCache();
    return c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
  };
  const int64_t one = reserved_after(first);
  const int64_t two = reserved_after(second);
  EXPECT_GT(one, 12 << 20);
  EXPECT_LT(two - one, 12 << 20);
}

TEST_F(GraphExecutorTest, HostOperatorsAreReplayedAndTheLogSaysWhy) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", (x.cpu() + 1).to(at::kCUDA) * 2}};
  });
  Session session(*graph_);
  const std::string log = stdout_of([&] {
    for (int i = 0; i < kRuns; ++i) {
      const at::Tensor x = batch_of(2, static_cast<float>(i));
      EXPECT_TRUE(at::allclose(session.run(op, {"y"}, {{"x", x}})[0], (x + 1) * 2));
    }
  });
  EXPECT_THAT(log, HasSubstr("Op 'step' cannot be captured as a CUDA graph and is replayed"));
  EXPECT_THAT(log, HasSubstr("in host memory"));
}

TEST_F(GraphExecutorTest, OperatorsThatWaitForTheDeviceAreReplayedAndNamed) {
  auto optimizer = apply_grad_processors(SGD({.lr = 0.1}), {CheckGradient()});
  const Op op = define_on_x(*graph_, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor cost = FullyConnected("fc", x, {.units = 2}).square().mean();
    minimize(optimizer, cost, graph_->variables().trainable());
    return {{"cost", cost}};
  });
  Session session(*graph_);
  const std::string log = stdout_of([&] {
    for (int i = 0; i < kRuns; ++i) session.run(op, {"cost"}, {{"x", batch_of(2)}});
  });
  EXPECT_THAT(log, HasSubstr("tensorpack::check_finite waits for the device"));
}

TEST_F(GraphExecutorTest, FailedCaptureLeavesTheProcessUsable) {
  const cuda::CaptureSpace space(0);
  at::Tensor x = at::ones({4}, at::kCUDA);
  const auto fail = [&] {
    const cuda::Capture capture(space, at::Generator());
    x = at::dropout(x, 0.5, true);
    x.sum().item<float>();  // waits
  };
  EXPECT_ANY_THROW(fail());
  EXPECT_EQ(at::ones({3}, at::kCUDA).sum().item<float>(), 3);
  EXPECT_EQ(at::rand({3}, at::kCUDA).numel(), 3);
  // Everything works again.
  cuda::Capture good(space, at::Generator());
  const at::Tensor y = at::ones({4}, at::kCUDA) + 1;
  good.end();
  good.launch();
  EXPECT_EQ(y.sum().item<float>(), 8);
  CapturedDropout dropout(*graph_);
  for (int i = 0; i < kRuns; ++i) dropout();
  EXPECT_FALSE(at::equal(dropout(), dropout()));
}

TEST_F(GraphExecutorTest, TooLittleMemoryIsAnErrorWithTheFigures) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", x.repeat({1, 1 << 18}).exp().sum()}};
  });
  Session session(*graph_, {.verify = false});
  c10::cuda::CUDACachingAllocator::emptyCache();
  c10::cuda::CUDACachingAllocator::setMemoryFraction(0.01, 0);
  EXPECT_ERROR(session.run(op, {"y"}, {{"x", at::ones({1000, 3})}}), "[run 'step'] CUDA out of");
  c10::cuda::CUDACachingAllocator::setMemoryFraction(1, 0);
  EXPECT_NEAR(session.run(op, {"y"}, {{"x", at::zeros({1, 3})}})[0].item<float>(), 3 << 18, 1);
}

// A capture that does not fit, wherever it begins.
void expect_no_room_to_capture() {
  const cuda::CaptureSpace space(0);
  const LittleMemory left(0);
  const auto capture_zeros = [&] {
    cuda::Capture capture(space, at::Generator());
    at::zeros({1}, at::kCUDA);
    capture.end();
  };
  EXPECT_THROW(capture_zeros(), c10::OutOfMemoryError);
}

TEST_F(GraphExecutorTest, NoMemoryForACaptureIsAnErrorAndLeavesTheProcessUsable) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"sum", x.sum()}};
  });
  Session session(*graph_);
  const at::Tensor batch = at::ones({4, 3}, at::kCUDA);
  expect_no_room_to_capture();
  // With a little room on every stream it is missing only when the capture has begun.
  std::vector<at::Tensor> little;
  for (int i = 0; i < 64; ++i) {
    const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getStreamFromPool(true, 0));
    little.push_back(at::empty({1}, at::kCUDA));
  }
  expect_no_room_to_capture();
  for (int i = 0; i < kRuns; ++i) {
    EXPECT_EQ(session.run(op, {"sum"}, {{"x", batch}})[0].item<float>(), 12);
  }
}

TEST_F(GraphExecutorTest, WhatFitsWithoutBeingVerifiedTrainsWithout) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"sum", x.sum()}};
  });
  Session session(*graph_);
  const at::Tensor batch = at::ones({10 << 20, 3}, at::kCUDA);
  c10::cuda::CUDACachingAllocator::emptyCache();
  const std::string log = stdout_of([&] {
    const LittleMemory left(batch.nbytes() / 2);
    for (int i = 0; i < kRuns; ++i) {
      EXPECT_EQ(session.run(op, {"sum"}, {{"x", batch}})[0].item<float>(), batch.numel());
    }
  });
  EXPECT_THAT(log, HasSubstr("Op 'step' was not verified: cuda:0 has no room"));
}

TEST_F(GraphExecutorTest, HostReadInTheTowerFunctionIsAnErrorBeforeTheFirstStep) {
  const Op op = define_on_x(*graph_, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", x.sum().item<float>() > 0 ? x : -x}};
  });
  Session session(*graph_);
  EXPECT_ERROR(session.run(op, {"y"}, {{"x", batch_of(2)}}), "_local_scalar_dense");
}

TEST_F(GraphExecutorTest, DeviceThatDoesNotExistIsAnError) {
  EXPECT_ERROR(Graph({.device = c10::Device(at::kCUDA, 77)}),
               "[device] 'cuda:77' cannot be used: there are");
}

TEST_F(GraphExecutorTest, GraphsOnTheCpuCannotBeCaptured) {
  Graph cpu;
  EXPECT_ERROR(Session(cpu, {.executor = ExecutorKind::kCudaGraph}),
               "ExecutorKind::kCudaGraph was asked for on the cpu");
}

}  // namespace
}  // namespace tensorpack::test
