// SPDX-License-Identifier: Apache-2.0
// Copies of weights that updates write, on traces of the CPU, and in whole trainings by replay.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>

#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/kept_copies.h"
#include "tensorpack/graph/patterns.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/session/session.h"
#include "tests/cuda/copying_training.h"
#include "tests/cuda/fusion.h"
#include "tests/cuda/transformer_op.h"

namespace tensorpack::cuda {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

const Tensors kRows{at::arange(12).reshape({4, 3}).to(at::kFloat).div(7)};

// Weights that a step reads in 16 bits, and updates by something like their gradients.
struct Weights {
  at::Tensor a = at::rand({5, 3}), b = at::rand({2, 3}), bias = at::rand({5});
  at::Tensor lr = at::full({}, 0.1);

  Tensors all() const { return {a, b, bias, lr}; }

  void update(const at::Tensor& y, std::vector<at::Tensor> variables) const {
    Tensors gradients;
    for (const at::Tensor& variable : variables) {
      gradients.push_back((y.to(at::kFloat).mean() * variable).sin());
    }
    kernels::sgd_(variables, {}, gradients, lr, {.weight_decay = 0.1});
  }
};

// The kept copies of a trace, with the variables that they are of.
std::vector<std::pair<at::Tensor, at::Tensor>> kept_copies(const Trace& trace) {
  std::vector<std::pair<at::Tensor, at::Tensor>> found;
  for (const Node& node : trace.nodes) {
    if (!is_op(node, "tensorpack::make_copies_")) continue;
    for (size_t i = 0; i < node.arguments[0].ids.size(); ++i) {
      found.emplace_back(trace.values[node.arguments[0].ids[i]].tensor,
                         trace.values[node.arguments[1].ids[i]].tensor);
    }
  }
  return found;
}

int casts_of_variables(const Trace& trace) {
  int casts = 0;
  for (const Node& node : trace.nodes) {
    if (!is_op(node, "tensorpack::cast_together") && !is_op(node, "aten::_to_copy")) continue;
    node.for_each_argument(
        [&](ValueId id) { casts += trace.values[id].kind == ValueKind::kVariable; });
  }
  return casts;
}

using StepOfWeights = std::function<NamedTensors(const Weights&, const at::Tensor& x)>;

// What steps of the trace give: the outputs of each, and in the end the variables.
Tensors outcome_of_steps(Trace trace, const Weights& weights) {
  const auto copies = kept_copies(trace);
  std::vector<std::string> fetches;
  for (const auto& [name, id] : trace.outputs) fetches.push_back(name);
  KeptCopies kept(trace);
  Program program(trace, fetches);
  Tensors found;
  for (int i = 0; i < 4; ++i) {
    const KeptCopies::Run run(kept);
    for (const at::Tensor& value : program.run({kRows[0] + i})) found.push_back(value.clone());
    for (const auto& [copy, variable] : copies) {
      EXPECT_TRUE(at::equal(copy, variable.to(copy.scalar_type()))) << "after step " << i;
    }
  }
  for (const at::Tensor& variable : weights.all()) found.push_back(variable.clone());
  return found;
}

// The pass keeps copies of so many variables, and steps give the bits that they gave without.
Trace expect_copies_kept(int variables, const StepOfWeights& step) {
  at::manual_seed(4);
  const Weights plain;
  Weights weights;
  for (auto [to, from] : {std::pair(&weights.a, &plain.a), std::pair(&weights.b, &plain.b),
                          std::pair(&weights.bias, &plain.bias)}) {
    *to = from->clone();
  }
  const auto record = [&](const Weights& of) {
    const Tensors before = {of.a.clone(), of.b.clone(), of.bias.clone()};
    Trace trace = trace_of(kRows, of.all(), [&](const Tensors& in) { return step(of, in[0]); });
    of.a.copy_(before[0]), of.b.copy_(before[1]), of.bias.copy_(before[2]);
    batch_casts(trace, at::kCPU);
    return trace;
  };
  const Trace expected = record(plain);
  Trace trace = record(weights);
  EXPECT_EQ(keep_copies(trace, at::kCPU), variables);
  if (variables == 0) {
    EXPECT_EQ(operators(trace), operators(expected));
  }
  const Tensors values = outcome_of_steps(trace, weights);
  const Tensors expected_values = outcome_of_steps(expected, plain);
  EXPECT_EQ(values.size(), expected_values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(at::equal(values[i], expected_values[i])) << i;
  }
  return trace;
}

at::Tensor short_of(const at::Tensor& tensor) { return tensor.to(at::kBFloat16); }

TEST(KeepCopiesTest, CastsAreMadeByTheUpdate) {
  const Trace trace =
      expect_copies_kept(3, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
        const at::Tensor y = at::addmm(short_of(w.bias), short_of(x), short_of(w.a).t());
        const at::Tensor z = at::mm(short_of(x), short_of(w.b).t());
        w.update(y + z.sum(), {w.a, w.b, w.bias});
        return {{"y", y}, {"z", z}};
      });
  EXPECT_EQ(count(trace, "tensorpack::make_copies_"), 1);
  EXPECT_EQ(count(trace, "tensorpack::sgd_and_copies_"), 1);
  EXPECT_EQ(count(trace, "tensorpack::sgd_"), 0);
  EXPECT_EQ(casts_of_variables(trace), 0);
}

TEST(KeepCopiesTest, ACastThatIsMadeAloneIsKept) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    expect_copies_kept(1, [type](const Weights& w, const at::Tensor& x) -> NamedTensors {
      const at::Tensor y = x.sum() * w.a.to(type);
      w.update(y, {w.b, w.a});
      return {{"y", y}};
    });
  }
}

TEST(KeepCopiesTest, PartsOfWhatIsPutTogetherAreWrittenWhereTheyLie) {
  const Trace trace =
      expect_copies_kept(3, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
        const at::Tensor both = short_of(at::cat({w.b, w.a}));
        const at::Tensor y = at::mm(short_of(x), both.t());
        w.update(y + short_of(w.bias).sum(), {w.a, w.bias, w.b});
        return {{"y", y}};
      });
  const auto copies = kept_copies(trace);
  ASSERT_EQ(copies.size(), 3U);
  EXPECT_EQ(copies[0].first.storage_offset() + copies[1].first.storage_offset() +
                copies[2].first.storage_offset(),
            2 * 3);  // that of `a`
}

TEST(KeepCopiesTest, SeveralUpdatesWriteTheirOwn) {
  const Trace trace =
      expect_copies_kept(2, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
        const at::Tensor y = x.sum() * short_of(at::cat({w.a, w.b}));
        w.update(y, {w.b});
        w.update(y, {w.a});
        return {};
      });
  EXPECT_EQ(count(trace, "tensorpack::sgd_and_copies_"), 2);
}

TEST(KeepCopiesTest, OtherCastsThatWereMadeWithThemStay) {
  const Trace trace =
      expect_copies_kept(1, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
        const at::Tensor both = short_of(at::cat({w.b, w.b + 0}));
        const at::Tensor y = x.sum() * short_of(w.a).sum() * short_of(w.bias).sum() * both;
        w.update(y, {w.a});
        return {{"y", y}};
      });
  EXPECT_EQ(count(trace, "tensorpack::cast_together"), 1);
  EXPECT_EQ(casts_of_variables(trace), 2);  // b and bias
}

TEST(KeepCopiesTest, WhatOthersSeeOrWriteIsLeftAlone) {
  using Named = NamedTensors;
  const std::vector<std::pair<const char*, StepOfWeights>> steps = {
      {"the copy is fetched",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a);
         w.update(x.sum() * copy, {w.a});
         return {{"copy", copy}};
       }},
      {"a view of the copy is fetched",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a).t();
         w.update(x.sum() * copy, {w.a});
         return {{"copy", copy}};
       }},
      {"the copy is read after the update",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a);
         w.update(x.sum() * copy, {w.a});
         return {{"y", copy + 1}};
       }},
      {"a part is updated before the copy is read",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor both = short_of(at::cat({w.a, w.b}));
         w.update(x, {w.a});
         w.update(x.sum() * both, {w.b});
         return {};
       }},
      {"the copy is written",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a);
         copy.mul_(2);
         w.update(x.sum() * copy, {w.a});
         return {};
       }},
      {"it is cast after the update",
       [](const Weights& w, const at::Tensor& x) -> Named {
         w.update(x, {w.a});
         return {{"y", x.sum() * short_of(w.a)}};
       }},
      {"the variable is written by somebody else, too",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a);
         w.update(y, {w.a});
         w.a.clamp_(-1, 1);
         return {{"y", y}};
       }},
      {"the variable is written through a view, too",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a);
         w.a.view({15}).mul_(0.5);
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"the variable is not updated",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a);
         w.update(y, {w.b});
         return {{"y", y}};
       }},
      {"a view of the variable is cast",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a.t());
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"what is put together has something else",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(at::cat({w.a, x}));
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"it is put together with itself",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(at::cat({w.a, w.a}));
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"the cast is to float64",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * w.a.to(at::kDouble);
         w.update(y, {w.a});
         return {{"y", y}};
       }},
  };
  for (const auto& [why, step] : steps) {
    SCOPED_TRACE(why);
    const Trace trace = expect_copies_kept(0, step);
    EXPECT_THAT(kept_copies(trace), IsEmpty());
  }
}

TEST(KeepCopiesTest, OfTwoCopiesOfAVariableOneIsKept) {
  const Trace trace =
      expect_copies_kept(2, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
        const at::Tensor y = x.sum() * short_of(w.a) * short_of(at::cat({w.a, w.b})).sum();
        const at::Tensor z =
            y.sum() * short_of(w.b) * w.bias.to(at::kHalf).sum();  // of another type
        w.update(z, {w.a, w.b, w.bias});
        return {{"y", y}};
      });
  EXPECT_THAT(operators(trace), Contains("tensorpack::sgd_and_copies_"));
}

TEST(KeepCopiesTest, ATransformerCastsNoWeights) {
  Graph graph;
  Adam optimizer({.lr = 0.01});
  const Op op = transformer_op(graph, optimizer);
  Session session(graph, {.precision = Precision::kBFloat16});
  Trace trace = session.trace(op);
  cuda::optimize(trace, {"cost"}, {.keep_copies = true, .device = at::kCPU});
  EXPECT_EQ(casts_of_variables(trace), 0);
  EXPECT_GT(kept_copies(trace).size(), 20U);
  EXPECT_EQ(count(trace, "tensorpack::adam_and_copies_"), 1);
}

TEST(KeepCopiesTest, IsOffUnlessItIsAskedFor) {
  const auto optimized = [](const PassSwitches& options) {
    const Weights w;
    Trace trace = trace_of(kRows, w.all(), [&](const Tensors& in) -> NamedTensors {
      const at::Tensor y = in[0].sum() * short_of(w.a).sum() * short_of(w.b);
      w.update(y, {w.a, w.b});
      return {{"y", y}};
    });
    cuda::optimize(trace, {"y"}, options);
    return operators(trace);
  };
  EXPECT_FALSE(PassSwitches().keep_copies);
  EXPECT_FALSE(PassSwitches::none().keep_copies);
  EXPECT_THAT(optimized({.device = at::kCPU}), Not(Contains("tensorpack::make_copies_")));
  EXPECT_THAT(optimized({.keep_copies = true, .device = at::kCPU}),
              Contains("tensorpack::make_copies_"));
  EXPECT_THAT(optimized({.keep_copies = true}), Not(Contains("tensorpack::make_copies_")));
}

TEST(KeepCopiesTest, KernelsOfTheUpdatesAreCompiledAhead) {
  EXPECT_TRUE(launches_kernels(sgd_and_copies_operator()));
  EXPECT_TRUE(launches_kernels(adam_and_copies_operator()));
}

// ---- in trainings

// CUDA's passes, for ops that are replayed on the CPU.
class LoweringForReplay final : public Lowering {
 public:
  using Lowering::Lowering;

  void optimize(const Op&, Trace& trace, const std::vector<std::string>& fetches) const override {
    cuda::optimize(trace, fetches, switches());
  }
};

void expect_same_replays(const StepOfTraining& step, PassSwitches fusion = {}) {
  fusion.device = at::kCPU;
  expect_same_training(
      at::kCPU, fusion,
      [](const PassSwitches& options) { return std::make_unique<LoweringForReplay>(options); },
      step);
}

TEST(TrainingWithKeptCopiesTest, GivesTheBitsOfTrainingWithout) {
  expect_same_replays([](CopyingTraining& training, int i) { return training.train(i); });
}

TEST(TrainingWithKeptCopiesTest, GivesTheBitsOfTrainingWithoutWhereResultsAreMadeAgain) {
  expect_same_replays([](CopyingTraining& training, int i) { return training.train(i); },
                      {.recompute = Recompute::kAlways});
}

TEST(TrainingWithKeptCopiesTest, GoesOnFromWhatIsAssigned) { expect_same_replays(assign_between); }

TEST(TrainingWithKeptCopiesTest, GoesOnFromWhatIsWrittenInPlace) {
  expect_same_replays(write_between);
}

TEST(TrainingWithKeptCopiesTest, GoesOnFromWhatAnotherOpWrote) {
  expect_same_replays(run_another_op_between);
}

TEST(TrainingWithKeptCopiesTest, TwoOpsTrainInTurns) { expect_same_replays(train_in_turns); }

TEST(TrainingWithKeptCopiesTest, ProgramsForOtherFetchesTrainInTurns) {
  expect_same_replays(fetch_in_turns);
}

}  // namespace
}  // namespace tensorpack::cuda
