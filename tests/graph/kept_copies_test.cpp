// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/kept_copies.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <thread>

#include "tensorpack/graph/variable_store.h"
#include "tests/graph/tracing.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

// Runs as runners do.
class KeepingProgram {
 public:
  explicit KeepingProgram(Trace trace, const std::vector<std::string>& fetches = {})
      : copies_(trace), program_(trace, fetches) {}

  Tensors run(const std::function<void()>& meanwhile = {}) {
    const KeptCopies::Run run(copies_);
    if (meanwhile) meanwhile();
    return program_.run(kOnes);
  }

 private:
  KeptCopies copies_;
  Program program_;
};

// A step that reads a copy of `w`, and leaves the next one.
struct Step {
  at::Tensor w = at::rand({3}).set_requires_grad(true);
  at::Tensor copy = at::empty({3}, at::kBFloat16);

  Trace trace() const {
    return trace_of(kOnes, {w}, [&](const Tensors& in) -> NamedTensors {
      const at::NoGradGuard no_grad;
      const auto make_copies = make_copies_operator().typed<void(at::TensorList, at::TensorList)>();
      make_copies.call({copy}, {w});
      const at::Tensor y = copy.to(at::kFloat) + 0;
      w.add_(in[0][0], 0.5);
      copy.copy_(w);
      return {{"y", y}};
    });
  }
  at::Tensor cast() const { return w.detach().to(at::kBFloat16).to(at::kFloat); }
};

TEST(KeptCopiesTest, WhatMakesThemIsNoPartOfTheProgram) {
  const Step step;
  Trace trace = step.trace();
  ASSERT_EQ(operators(trace)[0], "tensorpack::make_copies_");
  const KeptCopies copies(trace);
  EXPECT_THAT(operators(trace), Not(Contains("tensorpack::make_copies_")));
  EXPECT_THAT(operators(trace), Contains("aten::copy_"));
}

TEST(KeptCopiesTest, AreMadeInTheFirstRunAlone) {
  const Step step;
  KeepingProgram program(step.trace(), {"y"});
  step.copy.fill_(-5);
  const at::Tensor first = step.cast();
  EXPECT_TRUE(at::equal(program.run()[0], first));
  const at::Tensor second = step.cast();
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_TRUE(at::equal(program.run()[0], second));
  step.copy.fill_(7);  // nobody is to do so: it would be seen if they were made again
  EXPECT_TRUE(at::equal(program.run()[0], at::full({3}, 7.F)));
}

// Each of these writes `w` behind the back of the program.
TEST(KeptCopiesTest, AreMadeAgainAfterAnyWriteThatIsCounted) {
  const at::NoGradGuard no_grad;
  const Step step;
  const at::Tensor& w = step.w;
  KeepingProgram program(step.trace(), {"y"});
  KeepingProgram other(trace_of(kOnes, {w}, [&](const Tensors& in) -> NamedTensors {
    w.detach().view({3, 1}).narrow(0, 1, 1).sub_(in[0].sum());
    return {};
  }));
  const auto on_another_thread = [&] {
    std::thread([&] {
      const at::NoGradGuard no_grad_there;
      w.mul_(3);
    }).join();
  };
  const std::vector<std::pair<const char*, std::function<void()>>> writes = {
      {"in place", [&] { w.mul_(2); }},
      {"detached", [&] { w.detach().add_(1); }},
      {"view",
       [&] {
         w.view({1, 3}).narrow(1, 2, 1).zero_();
       }},
      {"index", [&] { w.index_put_({at::tensor({1}, at::kLong)}, at::tensor({9.F})); }},
      {"out=", [&] { at::add_out(const_cast<at::Tensor&>(w), w, w); }},
      {"assign", [&] { Variable{.name = "w", .tensor = w}.assign(at::randn({3})); }},
      {"many", [&] { at::_foreach_add_({w}, 0.25); }},
      {"another program", [&] { other.run(); }},
      {"inference mode",
       [&] {
         const c10::InferenceMode inference_mode;
         w.sub_(1);
       }},
      {"another thread", on_another_thread},
  };
  program.run();
  program.run();  // with what the first one left
  for (const auto& [name, write] : writes) {
    SCOPED_TRACE(name);
    for (int i = 0; i < 2; ++i) {
      const at::Tensor before = step.cast();
      write();
      const at::Tensor expected = step.cast();
      ASSERT_FALSE(at::equal(before, expected)) << "writes nothing";
      EXPECT_TRUE(at::equal(program.run()[0], expected));
      EXPECT_TRUE(at::equal(step.copy.to(at::kFloat), step.cast()));
    }
  }
}

// The other half of the contract, which SessionOptions::keep_weight_copies states.
TEST(KeptCopiesTest, LaterWritesThroughDataAreNotNoticed) {
  const Step step;
  KeepingProgram program(step.trace(), {"y"});
  program.run();
  program.run();
  const at::Tensor before = step.cast();
  step.w.data().mul_(2);
  EXPECT_TRUE(at::equal(program.run()[0], before));
}

TEST(KeptCopiesTest, AreMadeInEveryRunIfTheFirstThatAProgramLeavesAreWrong) {
  const Step step;
  KeepingProgram program(step.trace(), {"y"});
  program.run();
  step.copy[1] += 0.5;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor expected = step.cast();
    const std::string log =
        stdout_of([&] { EXPECT_TRUE(at::equal(program.run()[0], expected)) << "run " << i; });
    EXPECT_EQ(log.find("made before every step") != std::string::npos, i == 0) << log;
    step.copy.fill_(7);
  }
}

TEST(KeptCopiesTest, NotANumberIsRight) {
  const Step step;
  step.w.detach()[1] = std::numeric_limits<float>::quiet_NaN();
  KeepingProgram program(step.trace(), {"y"});
  program.run();
  EXPECT_TRUE(program.run()[0][1].isnan().item<bool>());
}

TEST(KeptCopiesTest, AWriteDuringARunIsNoticedInTheNext) {
  const at::NoGradGuard no_grad;
  const Step step;
  KeepingProgram program(step.trace(), {"y"});
  program.run();
  program.run([&] { step.w.mul_(2); });
  step.copy.fill_(7);
  const at::Tensor expected = step.cast();
  EXPECT_TRUE(at::equal(program.run()[0], expected));
}

TEST(KeptCopiesTest, ARunThatThrowsLeavesThemStale) {
  const Step step;
  KeepingProgram program(step.trace(), {"y"});
  program.run();
  EXPECT_THROW(program.run([] { throw std::runtime_error("in the middle of a step"); }),
               std::runtime_error);
  step.copy.fill_(7);
  const at::Tensor expected = step.cast();
  EXPECT_TRUE(at::equal(program.run()[0], expected));
}

TEST(KeptCopiesTest, ProgramsThatShareAVariableHaveCopiesOfTheirOwn) {
  Step a, b;
  b.w = a.w;
  KeepingProgram first(a.trace(), {"y"}), second(b.trace(), {"y"});
  for (int i = 0; i < 4; ++i) {
    for (KeepingProgram* program : {&first, &second, &second}) {
      const at::Tensor expected = a.cast();
      EXPECT_TRUE(at::equal(program->run()[0], expected)) << i;
    }
  }
}

TEST(KeptCopiesTest, WritesOfAProgramWithoutCopiesAreCountedToo) {
  const at::Tensor written = at::rand({3}), read = at::rand({3});
  KeepingProgram program(trace_of(kOnes, {written, read}, [&](const Tensors&) -> NamedTensors {
    written.add_(read);
    return {};
  }));
  const auto versions = [&] { return std::vector<int64_t>{written._version(), read._version()}; };
  const std::vector<int64_t> before = versions();
  program.run();
  EXPECT_THAT(versions(), ElementsAre(before[0] + 1, before[1]));
  EXPECT_THROW(program.run([] { throw std::runtime_error("in the middle of a step"); }),
               std::runtime_error);
  EXPECT_THAT(versions(), ElementsAre(before[0] + 2, before[1]));
}

}  // namespace
}  // namespace tensorpack
