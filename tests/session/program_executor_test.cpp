// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/program_executor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensorpack/session/session.h"
#include "tensorpack/utils/logger.h"
#include "tests/session/models.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(ProgramExecutorTest, FetchSetsShareOneRecording) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    return {{"a", x.sum()}, {"b", x.exp()}};
  });
  ProgramExecutor executor(graph, {.verify = false});
  executor.run(op, {batch_of(2)}, {"a"});
  executor.run(op, {batch_of(2)}, {"b", "a", "b"});
  executor.run(op, {batch_of(2)}, {});
  executor.run(op, {batch_of(2, 3)}, {"a"});
  EXPECT_EQ(executor.recordings(), 1U);
  EXPECT_EQ(calls, 2);  // to define and to record
}

TEST(ProgramExecutorTest, VerificationCallsTheFunctionOnceMoreAndBeforeEachOfTheFirstRuns) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    return {{"a", x.sum()}, {"b", x.exp()}};
  });
  ProgramExecutor executor(graph, {});
  std::vector<int> calls_until;
  for (int i = 0; i < 7; ++i) {
    executor.run(op, {batch_of(2)}, {i % 4 == 3 ? "b" : "a"});
    calls_until.push_back(calls);
  }
  // To define, to record and to verify; the program of "b" is verified before run 4.
  EXPECT_THAT(calls_until, testing::ElementsAre(3, 4, 5, 7, 8, 9, 10));
  EXPECT_EQ(executor.recordings(), 1U);
}

TEST(ProgramExecutorTest, ALaterVerificationComesBeforeRunsOfFibonaccisNumbers) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    return {{"a", x.sum()}};
  });
  ProgramExecutor executor(graph, {});
  std::vector<int64_t> compared;
  for (int64_t run = 1; run <= 250; ++run) {
    const int before = calls;
    executor.run(op, {batch_of(2)}, {"a"});
    if (calls > before && run > RecordingWatch::kEveryRun) compared.push_back(run);
  }
  EXPECT_THAT(compared, testing::ElementsAre(89, 144, 233));
}

TEST(ProgramExecutorTest, AFunctionOfManyOperatorsIsComparedBeforeFewerOfTheFirstRuns) {
  constexpr int64_t kOperators = 512;
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](at::Tensor x) -> NamedTensors {
    ++calls;
    for (int64_t i = 0; i < kOperators; ++i) x = x.exp();
    return {{"a", x}};
  });
  ProgramExecutor executor(graph, {});
  std::vector<int64_t> compared;
  for (int64_t run = 1; run <= 40; ++run) {
    const int before = calls;
    executor.run(op, {batch_of(2)}, {"a"});
    if (calls > before && run > 6) compared.push_back(run);
  }
  EXPECT_THAT(compared, testing::ElementsAre(7, 8, 13, 21, 34));
}

// Only the first recording of an op is compared before every run: others are of the same function.
TEST(ProgramExecutorTest, RecordingsOfOtherShapesAreComparedRarely) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    return {{"a", x.sum()}};
  });
  ProgramExecutor executor(graph, {});
  executor.run(op, {batch_of(2)}, {"a"});
  std::vector<int64_t> compared;
  for (int64_t run = 1; run <= 9; ++run) {
    const int before = calls;
    executor.run(op, {batch_of(3)}, {"a"});
    if (calls > before && run > 1) compared.push_back(run);
  }
  EXPECT_THAT(compared, testing::ElementsAre(2, 3, 5, 8));
}

TEST(ProgramExecutorTest, NewShapesAreRecordedAgainWithOneWarningPastEight) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    return {{"a", x.mean(0)}};
  });
  ProgramExecutor executor(graph, {});
  testing::internal::CaptureStdout();
  for (int round = 0; round < 2; ++round) {
    for (int64_t rows = 1; rows <= 8; ++rows) executor.run(op, {batch_of(rows)}, {"a"});
  }
  EXPECT_THAT(testing::internal::GetCapturedStdout(), Not(HasSubstr("different input shapes")));
  EXPECT_EQ(executor.recordings(), 8U);
  testing::internal::CaptureStdout();
  for (int64_t rows = 9; rows <= 12; ++rows) {
    const at::Tensor x = batch_of(rows);
    EXPECT_TRUE(at::equal(executor.run(op, {x}, {"a"})[0], x.mean(0)));
  }
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_EQ(occurrences(log, "different input shapes"), 1U);
  EXPECT_THAT(log, HasSubstr("Op 'step' was recorded for 9 different input shapes, now [9, 3]"));
}

TEST(ProgramExecutorTest, AfterManyRecordingsOtherShapesRunEagerlyWhichIsSaidOnce) {
  Graph graph;
  int calls = 0;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    return {{"a", x.mean(0)}, {"b", x.sum()}};
  });
  ProgramExecutor executor(graph, {.verify = false});
  constexpr auto kMost = static_cast<int64_t>(ProgramExecutor::kMostRecordings);
  testing::internal::CaptureStdout();
  for (int64_t rows = 1; rows <= kMost; ++rows) executor.run(op, {batch_of(rows)}, {"a"});
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              Not(HasSubstr("it runs eagerly on other shapes, which")));
  calls = 0;
  testing::internal::CaptureStdout();
  for (int64_t rows = kMost + 1; rows <= kMost + 10; ++rows) {
    const at::Tensor x = batch_of(rows);
    const Tensors values = executor.run(op, {x}, {"b", "a"});
    EXPECT_TRUE(at::equal(values[0], x.sum()));
    EXPECT_TRUE(at::equal(values[1], x.mean(0)));
  }
  const std::string log = testing::internal::GetCapturedStdout();
  EXPECT_EQ(occurrences(log, "Op 'step' was recorded for 64 different input shapes. From now on"),
            1U);
  EXPECT_EQ(executor.recordings(), ProgramExecutor::kMostRecordings);
  EXPECT_EQ(calls, 10) << "once a run";
  executor.run(op, {batch_of(1)}, {"a"});
  EXPECT_EQ(calls, 10) << "shapes that were recorded run as programs";
}

struct Counts {
  size_t made = 0;
  size_t kept = 0;
};

// Counts the programs.
class CountingLowering final : public Lowering {
 public:
  explicit CountingLowering(std::shared_ptr<Counts> counts) : counts_(std::move(counts)) {}

  std::unique_ptr<ProgramRunner> make_runner(
      const Op& op, const Trace& trace, const std::vector<std::string>& fetches) const override {
    return std::make_unique<Counted>(Lowering::make_runner(op, trace, fetches), counts_);
  }

 private:
  class Counted final : public ProgramRunner {
   public:
    Counted(std::unique_ptr<ProgramRunner> runner, std::shared_ptr<Counts> counts)
        : runner_(std::move(runner)), counts_(std::move(counts)) {
      ++counts_->made;
      ++counts_->kept;
    }
    ~Counted() override { --counts_->kept; }
    std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
      return runner_->run(inputs);
    }

   private:
    std::unique_ptr<ProgramRunner> runner_;
    std::shared_ptr<Counts> counts_;
  };

  std::shared_ptr<Counts> counts_;
};

TEST(ProgramExecutorTest, OfManyListsOfFetchesTheProgramUsedLeastRecentlyIsForgotten) {
  Graph graph;
  constexpr size_t kOutputs = ProgramExecutor::kMostFetchLists + 1;
  const auto name = [](size_t i) { return "y" + std::to_string(i); };
  const Op op = define_on_x(graph, [&](const at::Tensor& x) {
    NamedTensors outputs;
    for (size_t i = 0; i < kOutputs; ++i) outputs[name(i)] = x + static_cast<double>(i);
    return outputs;
  });
  const auto counts = std::make_shared<Counts>();
  ProgramExecutor executor(graph, {.verify = false}, std::make_unique<CountingLowering>(counts));
  const at::Tensor x = batch_of(2);
  const auto run = [&](size_t i) {
    EXPECT_TRUE(at::equal(executor.run(op, {x}, {name(i)})[0], x + static_cast<double>(i)));
  };
  for (size_t i = 0; i + 1 < kOutputs; ++i) run(i);
  run(0);
  run(kOutputs - 1);  // in place of 1
  EXPECT_EQ(counts->kept, ProgramExecutor::kMostFetchLists);
  run(0);
  EXPECT_EQ(counts->made, kOutputs);
  run(1);
  EXPECT_EQ(counts->made, kOutputs + 1);
  EXPECT_EQ(executor.recordings(), 1U);
}

TEST(ProgramExecutorTest, RecordingAndVerifyingLeaveNoTrace) {
  Graph graph;
  const at::Tensor captured = at::zeros({3});
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::ones());
    const at::Tensor mean = get_variable("mean", {3}, {.role = VariableRole::kModel});
    at::NoGradGuard no_grad;
    w.sub_(x.sum(0));
    mean.mul_(0.9).add_(x.mean(0), 0.1);
    captured.add_(x.sum(0));
    return {{"noise", at::rand({3}) + x}};
  });
  captured.zero_();
  const auto run = [&](ExecutorKind kind) {
    graph.variables().at("W").assign(at::ones({3}));
    graph.variables().at("mean").assign(at::zeros({3}));
    captured.zero_();
    at::Generator generator = graph.generators().at("main/cpu");
    generator.set_current_seed(9);
    auto executor = make_executor(kind, graph, {});
    Tensors all = executor->run(op, {batch_of(2)}, {"noise"});
    for (const Variable& variable : graph.variables().all()) {
      all.push_back(variable.tensor.detach().clone());
    }
    all.push_back(captured.clone());
    all.push_back(generator.get_state());
    return all;
  };
  const Tensors eager = run(ExecutorKind::kEager);
  const Tensors replay = run(ExecutorKind::kReplay);
  ASSERT_EQ(eager.size(), replay.size());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(at::equal(eager[i], replay[i])) << i;
}

// rand() can only be lent the state of the generator, dropout is given the generator itself.
TEST(ProgramExecutorTest, RandomNumbersAreThoseOfEagerWhicheverWayOperatorsDrawThem) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    return {{"noise", at::dropout(at::rand({3}) + x, 0.5, /*train=*/true)}};
  });
  const auto three_runs = [&](ExecutorKind kind) {
    at::Generator generator = graph.generators().at("main/cpu");
    generator.set_current_seed(9);
    auto executor = make_executor(kind, graph, {});
    Tensors noise;
    for (int run = 0; run < 3; ++run) {
      noise.push_back(executor->run(op, {batch_of(2)}, {"noise"})[0].clone());
    }
    return at::stack(noise);
  };
  EXPECT_TRUE(at::equal(three_runs(ExecutorKind::kEager), three_runs(ExecutorKind::kReplay)));
}

TEST(ProgramExecutorTest, AnInputWrittenInPlaceStaysAsItIsForTheCaller) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    at::Tensor(x).mul_(2);
    return {{"y", x + 1}};
  });
  for (auto kind : {ExecutorKind::kReplay, ExecutorKind::kEager}) {
    auto executor = make_executor(kind, graph, {});
    const at::Tensor x = at::ones({2, 3});
    for (int run = 0; run < 3; ++run) {
      EXPECT_EQ(executor->run(op, {x}, {"y"})[0].max().item<float>(), 3);
      EXPECT_EQ(x.max().item<float>(), 1);
    }
  }
}

TEST(ProgramExecutorTest, OneTensorFedTwiceIsTwoInputs) {
  Graph graph;
  const Op op = graph.define({
      .name = "difference",
      .inputs = {{"x", {-1, 3}}, {"y", {-1, 3}}},
      .body = [](const Tensors& in) -> NamedTensors {
        return {{"d", in[0] - 2 * in[1]}};
      },
  });
  auto executor = make_executor(ExecutorKind::kReplay, graph, {});
  const at::Tensor x = at::ones({2, 3});
  EXPECT_EQ(executor->run(op, {x, x}, {"d"})[0].max().item<float>(), -1);
  EXPECT_EQ(executor->run(op, {x * 5, x}, {"d"})[0].max().item<float>(), 3);
}

TEST(ProgramExecutorTest, ATensorTheFunctionKnowsMayBeFed) {
  Graph graph;
  const at::Tensor known = at::ones({2, 3});
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    return {{"d", x - 2 * known}};
  });
  auto executor = make_executor(ExecutorKind::kReplay, graph, {});
  EXPECT_EQ(executor->run(op, {known}, {"d"})[0].max().item<float>(), -1);
  EXPECT_EQ(executor->run(op, {known * 5}, {"d"})[0].max().item<float>(), 3);
}

TEST(ProgramExecutorTest, InputsWithOverlappingMemoryCanBeFed) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * 2}};
  });
  auto executor = make_executor(ExecutorKind::kReplay, graph, {});
  const at::Tensor row = at::ones({1, 3});
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(executor->run(op, {(row * i).expand({2, 3})}, {"y"})[0].sum().item<float>(), 12 * i);
  }
}

TEST(ProgramExecutorTest, TheLogForDevelopersTellsThePartsOfTheFirstRun) {
  Graph graph;
  logging::set_level(logging::Level::kDebug);
  const std::string log = stdout_of([&] {
    const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
      return {{"y", x * 2}};
    });
    auto executor = make_executor(ExecutorKind::kReplay, graph, {});
    executor->run(op, {at::ones({2, 3})}, {"y"});
  });
  logging::set_level(logging::Level::kInfo);
  for (const char* part : {"building on a trial input", "recording", "running the function",
                           "running the program", "comparing", "optimizing the program"}) {
    const std::string line = std::string("Op 'step': ") + part;
    const size_t found = log.find(line);
    EXPECT_NE(found, std::string::npos) << line;
    EXPECT_EQ(log.find(line, found + 1), std::string::npos) << line << ", once more";
  }
}

TEST(ProgramExecutorTest, ATensorFromAnotherDeviceIsNamedWhenTheOpIsDefined) {
  Graph graph;
  const at::Tensor elsewhere = at::ones({3}, at::TensorOptions(at::kMeta));
  EXPECT_ERROR(define_on_x(graph,
                           [&](const at::Tensor& x) -> NamedTensors {
                             return {{"y", x * elsewhere}};
                           }),
               "[define 'step'] Expected all tensors to be on the same device");
}

// libtorch takes the mean of the rows that count after a selection of them.
TEST(ProgramExecutorTest, CrossEntropyIsRecordedWithEveryOptionItHas) {
  const at::Tensor labels = at::tensor({2, 0, 1, -100, 2, 1}, at::kLong);
  const at::Tensor class_weights = at::tensor({0.5F, 1.0F, 3.0F});
  const std::vector<at::Tensor> targets = {labels,
                                           at::softmax(at::arange(18).view({6, 3}).sin(), 1)};
  for (const at::Tensor& target : targets) {
    for (const c10::optional<at::Tensor>& weight : {c10::optional<at::Tensor>(), {class_weights}}) {
      for (const double smoothing : {0.0, 0.1}) {
        for (const auto reduction :
             {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum}) {
          SCOPED_TRACE(testing::Message()
                       << target.dim() << weight.has_value() << smoothing << reduction);
          const auto loss = [&](const at::Tensor& logits) {
            return at::cross_entropy_loss(logits, target, weight, reduction, -100, smoothing);
          };
          const auto gradient = [&](at::Tensor logits) {
            logits.requires_grad_();
            at::AutoGradMode on(true);
            return torch::autograd::grad({loss(logits).sum()}, {logits})[0];
          };
          const at::Tensor x = at::arange(18, at::kFloat).view({6, 3}).cos();
          Graph graph;
          const Op op = graph.define({
              .name = "loss",
              .inputs = {{"x", {6, 3}}},
              .body = [&](const Tensors& in) -> NamedTensors {
                return {{"loss", loss(in[0])}, {"gradient", gradient(in[0].detach().clone())}};
              },
          });
          ProgramExecutor executor(graph, {});
          const Tensors got = executor.run(op, {x}, {"loss", "gradient"});
          EXPECT_TRUE(at::allclose(got[0], loss(x)));
          EXPECT_TRUE(at::allclose(got[1], gradient(x.clone())));
        }
      }
    }
  }
}

// libtorch 1.13 makes a tensor of the number, and an index of that, which depends on data.
TEST(ProgramExecutorTest, RepeatInterleaveByANumberIsRecorded) {
  const auto repeated = [](const at::Tensor& x) {
    return Tensors{x.repeat_interleave(2),
                   x.repeat_interleave(3, 0),
                   x.repeat_interleave(1, 1),
                   x.repeat_interleave(2, -1),
                   x.t().repeat_interleave(2, 0),
                   x.repeat_interleave(0, 0),
                   x[0][0].repeat_interleave(4),
                   x.repeat_interleave(2, 1, 6),
                   at::arange(2).repeat_interleave(2)};
  };
  Graph graph;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor leaf = x.detach().clone().set_requires_grad(true);
    const Tensors values = repeated(leaf);
    NamedTensors outputs;
    for (size_t i = 0; i < values.size(); ++i) outputs[std::to_string(i)] = values[i];
    outputs["gradient"] = torch::autograd::grad({values[0].square().sum()}, {leaf})[0];
    return outputs;
  });
  ProgramExecutor executor(graph, {});
  const at::Tensor x = batch_of(2);
  const Tensors expected = repeated(x);
  std::vector<std::string> names;
  for (size_t i = 0; i < expected.size(); ++i) names.push_back(std::to_string(i));
  names.emplace_back("gradient");
  const Tensors got = executor.run(op, {x}, names);
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(got[i], expected[i])) << i;
  EXPECT_TRUE(at::allclose(got.back(), 4 * x));
}

struct Refusal {
  std::string name;
  std::function<NamedTensors(const at::Tensor&)> function;
  std::string message;
};
void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class ReplayRefusalTest : public testing::TestWithParam<Refusal> {};

TEST_P(ReplayRefusalTest, IsNamedAndTheProcessGoesOn) {
  {
    Graph graph;
    const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
      VariableScope scope("head");
      return GetParam().function(x);
    });
    graph.finalize();
    Session session(graph);
    EXPECT_ERROR(session.run(op, {}, {{"x", batch_of(2)}}), GetParam().message);
    EXPECT_ERROR(session.run(op, {}, {{"x", batch_of(2)}}), GetParam().message);
    EXPECT_EQ(VariableScope::current_path(), "");
    Session eager(graph, {.executor = ExecutorKind::kEager});
    if (GetParam().name != "LateVariable") {
      eager.run(op, {}, {{"x", batch_of(2)}});
    }
  }
  Graph graph;
  const Op op = define_regression(graph);
  graph.finalize();
  Session session(graph);
  session.run(op, {"cost"}, {{"x", batch_of(2)}});
}

bool is_trial(const at::Tensor& x) { return x.data_ptr<float>()[0] == 0; }

INSTANTIATE_TEST_SUITE_P(
    All, ReplayRefusalTest,
    testing::Values(
        Refusal{"Item",
                [](const at::Tensor& x) -> NamedTensors {
                  return {{"y", x * x.sum().item<float>()}};
                },
                "[record] aten::_local_scalar_dense (called by aten::item) in scope 'head' brings "
                "a tensor's value to the "
                "host"},
        Refusal{"Branch",
                [](const at::Tensor& x) -> NamedTensors {
                  return {{"y", x.sum().is_nonzero() ? x : x * 2}};
                },
                "in scope 'head' brings a tensor's value to the host"},
        Refusal{"Nonzero",
                [](const at::Tensor& x) -> NamedTensors {
                  return {{"y", x.nonzero()}};
                },
                "[record] aten::nonzero in scope 'head' makes a tensor whose shape depends on the "
                "data"},
        Refusal{"MaskedSelect",
                [](const at::Tensor& x) -> NamedTensors {
                  return {{"y", x.masked_select(x > 1)}};
                },
                "aten::masked_select in scope 'head' makes a tensor whose shape depends"},
        Refusal{"LateVariable",
                [](const at::Tensor& x) -> NamedTensors {
                  return {{"y", x * get_variable(is_trial(x) ? "first" : "second", {3})}};
                },
                "'head/second' is new, and the graph is final"}),
    [](const testing::TestParamInfo<Refusal>& info) { return info.param.name; });

}  // namespace
}  // namespace tensorpack
