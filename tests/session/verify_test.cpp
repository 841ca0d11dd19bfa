// SPDX-License-Identifier: Apache-2.0
// Verification finds what the host froze.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/optim/adam.h>

#include "tensorpack/session/session.h"
#include "tests/session/models.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// The text of the error that the first run throws.
std::string first_error(std::function<NamedTensors(const at::Tensor&)> function) {
  Graph graph;
  const Op op = define_on_x(graph, std::move(function));
  Session session(graph);
  try {
    session.run(op, {}, {{"x", batch_of(4)}});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(VerifyTest, AValueReadThroughAPointerIsFound) {
  EXPECT_THAT(
      first_error([](const at::Tensor& x) -> NamedTensors {
        VariableScope scope("scale");
        return {{"y", x.exp() * x.data_ptr<float>()[0]}};
      }),
      AllOf(HasSubstr("[verify 'step'] the recorded program and the function disagree on "
                      "the tensor 'y'"),
            HasSubstr("node 1, aten::mul.Scalar in scope 'scale': its argument 'other' was 1. "
                      "when recorded and is 1.6625")));
}

TEST(VerifyTest, AMemberThatChangesIsFoundWithItsValues) {
  int calls = 0;
  EXPECT_THAT(first_error([&](const at::Tensor& x) -> NamedTensors {
                return {{"y", at::pow(x, ++calls)}};
              }),
              AllOf(HasSubstr("aten::pow.Tensor_Scalar"),
                    HasSubstr("its argument 'exponent' was 2 when recorded and is 4 now")));
}

TEST(VerifyTest, AChangedCourseIsFound) {
  bool odd = false;
  EXPECT_THAT(first_error([&](const at::Tensor& x) -> NamedTensors {
                odd = !odd;
                return {{"y", odd ? x.exp() : x.sin()}};
              }),
              HasSubstr("[verify 'step']"));
}

TEST(VerifyTest, ATensorThatIsNotNamedAgainIsFound) {
  int calls = 0;
  EXPECT_THAT(first_error([&](const at::Tensor& x) -> NamedTensors {
                if (++calls == 3) return {};
                return {{"y", x.exp()}};
              }),
              HasSubstr("disagree on the tensor 'y'"));
}

TEST(VerifyTest, AFunctionThatDoesNotRepeatItselfIsFound) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::ones());
    const at::Tensor count = at::zeros({3});
    count.data_ptr<float>()[0] = static_cast<float>(++calls);
    at::NoGradGuard no_grad;
    w.add_(x.sum(0) + count);
    return {};
  });
  Session session(graph);
  EXPECT_ERROR(session.run(op, {}, {{"x", batch_of(4)}}), "disagree on the variable 'W'");
}

struct RawDouble : torch::autograd::Function<RawDouble> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) {
    auto y = at::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) {
      y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    }
    return y;
  }
  static Tensors backward(torch::autograd::AutogradContext*, Tensors gradient) {
    return {gradient[0] * 2};
  }
};

TEST(VerifyTest, AKernelOutsideTheDispatcherIsFound) {
  EXPECT_THAT(first_error([](const at::Tensor& x) -> NamedTensors {
                return {{"y", RawDouble::apply(x).exp()}};
              }),
              AllOf(HasSubstr("[verify 'step']"), HasSubstr("aten::exp"),
                    HasSubstr("a kernel outside libtorch's dispatcher")));
}

TEST(VerifyTest, TheStepCountOfLibtorchsAdamIsFound) {
  Graph graph;
  std::unique_ptr<torch::optim::Adam> adam;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::ones());
    if (!adam) {
      adam = std::make_unique<torch::optim::Adam>(Tensors{w}, torch::optim::AdamOptions(1e-4));
    }
    adam->zero_grad();
    at::mv(x, w).pow(2).mean().backward();
    adam->step();
    return {};
  });
  Session session(graph);
  EXPECT_ERROR(session.run(op, {}, {{"x", batch_of(4)}}), "disagree on the variable 'W'");
}

TEST(VerifyTest, ASmallChangeOfALargeVariableIsCompared) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::constant(100));
    at::NoGradGuard no_grad;
    w.sub_(x.mean(0), 1e-3 * ++calls);
    return {};
  });
  Session session(graph);
  EXPECT_ERROR(session.run(op, {}, {{"x", batch_of(4)}}), "disagree on the variable 'W'");
}

TEST(VerifyTest, CanBeSwitchedOff) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * ++calls}};
  });
  Session session(graph, {.verify = false});
  session.run(op, {"y"}, {{"x", batch_of(4)}});
}

TEST(VerifyTest, AfterAFailureVariablesAreAsBefore) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::ones());
    at::NoGradGuard no_grad;
    w.add_(x.sum(0), ++calls);
    return {};
  });
  Session session(graph);
  EXPECT_ERROR(session.run(op, {}, {{"x", batch_of(4)}}), "[verify 'step']");
  EXPECT_TRUE(at::equal(graph.variables().at("W").tensor, at::ones({3})));
}

TEST(VerifyTest, InputsWrittenInPlaceAreVerifiedOnCleanOnes) {
  Graph graph;
  const Op op = graph.define({
      .name = "lookup",
      .inputs = {{"ids", {-1}, at::kLong, {2}}},
      .body = [](const Tensors& in) -> NamedTensors {
        auto ids = at::Tensor(in[0]).sub_(1).clamp_min_(0);
        return {{"y", at::embedding(at::eye(3), ids)}};
      },
  });
  Session session(graph);
  session.run(op, {"y"}, {{"ids", at::arange(1, 4)}});
}

TEST(VerifyTest, RandomAndCapturedStateDoNotTriggerIt) {
  const at::Tensor captured = at::zeros({3});
  EXPECT_EQ(first_error([&](const at::Tensor& x) -> NamedTensors {
              at::NoGradGuard no_grad;
              captured.add_(x.sum(0));
              return {{"y", at::dropout(x, 0.5, true) + captured}, {"nan", (x * 0).log()}};
            }),
            "");
}

TEST(VerifyTest, AVariableWrittenThroughAPointerIsFound) {
  Graph graph;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::ones());
    w.data_ptr<float>()[0] += 1;
    return {{"y", x.exp()}};
  });
  Session session(graph);
  EXPECT_ERROR(session.run(op, {}, {{"x", batch_of(4)}}),
               "disagree on the variable 'W' for another batch; first at a write to it that no "
               "operator made");
}

}  // namespace
}  // namespace tensorpack
