// SPDX-License-Identifier: Apache-2.0
// What a function reads on the host may change while a program repeats it: the program follows, or
// its next comparison with the function says so.
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include "tensorpack/session/session.h"
#include "tests/session/models.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void run_on_ones(Session& session, const Op& op, int times) {
  for (int i = 0; i < times; ++i) session.run(op, {"y"}, {{"x", at::ones({2, 3})}});
}

class VerifyAgainTest : public testing::Test {
 protected:
  void define(std::function<NamedTensors(const at::Tensor&)> function) {
    op_ = define_on_x(graph_, std::move(function));
    session_.emplace(graph_, options_);
  }

  at::Tensor run(const at::Tensor& x = at::ones({2, 3})) {
    ++runs_;
    return session_->run(op_, {"y"}, {{"x", x}})[0];
  }
  double number() { return run().sum().item<double>() / 6; }

  // Runs as often as it ran before, at most. The text of the error, and before which run it came.
  std::string error_by_twice_the_runs(const at::Tensor& x = at::ones({2, 3})) {
    try {
      for (int more = runs_; more >= 0; --more) run(x);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  Graph graph_;
  SessionOptions options_;
  Op op_;
  std::optional<Session> session_;
  int runs_ = 0;
};

TEST(VerifyAgain, ANumberThatChangesIsFoundWithItsValuesByTwiceTheRuns) {
  for (const int first : {1, 5, 60}) {
    SCOPED_TRACE(first);
    Graph graph;
    double weight = 1;
    const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
      VariableScope scope("loss");
      return {{"y", x.div(weight)}};
    });
    Session session(graph);
    run_on_ones(session, op, first);
    weight = 1.00001;  // far less than what rounding may do elsewhere
    EXPECT_ERROR(run_on_ones(session, op, first + 1),
                 "in scope 'loss': its argument 'other' was 1");
  }
}

TEST(VerifyAgain, ANumberOfEveryThirdFifthOrTenthStepIsFound) {
  struct When {
    int period;
    int phase;
  };
  for (const When when : {When{3, 0}, When{5, 0}, When{10, 1}}) {
    SCOPED_TRACE(when.period);
    Graph graph;
    int n = 1;  // of the run
    const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
      return {{"y", x * (n > 1 && n % when.period == when.phase ? 5 : 1)}};
    });
    Session session(graph);
    const auto train = [&] {
      for (; n < 40; ++n) run_on_ones(session, op, 1);
    };
    EXPECT_ERROR(train(), "its argument 'other' was 1 when recorded and is 5 now");
  }
}

TEST_F(VerifyAgainTest, TheMessageNamesRunOperatorAndRemedy) {
  double limit = 0.5;
  define([&](const at::Tensor& x) -> NamedTensors {
    VariableScope scope("clip");
    return {{"y", x.clamp(-limit, limit)}};
  });
  for (int i = 0; i < 5; ++i) run();
  limit = 0.25;
  EXPECT_THAT(
      error_by_twice_the_runs(),
      AllOf(HasSubstr("[verify 'step'] before run 6, the function does something else than when "
                      "it was recorded; first at node 0, aten::clamp in scope 'clip': its argument "
                      "'min' was -0.5 when recorded and is -0.25 now"),
            HasSubstr("Graph::announce_change()")));
}

// Far fewer calls than steps would not get there.
TEST_F(VerifyAgainTest, ACountOfCallsIsFoundBeforeTheStepInWhichItWouldTakeEffect) {
  int calls = 0;
  define([&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * (++calls > 50 ? 2. : 1.)}};
  });
  const auto train = [&] {
    for (int i = 0; i < 51; ++i) EXPECT_EQ(number(), 1);
  };
  EXPECT_ERROR(train(), "its argument 'other' was 1. when recorded and is 2. now");
}

// One comparison shows it, and the call after that would not.
TEST_F(VerifyAgainTest, ANumberOfEveryFifthCallIsFound) {
  int calls = 0;
  define([&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * (++calls % 5 == 4 ? 2. : 1.)}};
  });
  run();
  EXPECT_ERROR(run(), "its argument 'other' was 1. when recorded and is 2. now");
}

// A server that answers each failed request and goes on must not answer by the old number.
TEST_F(VerifyAgainTest, AChangeThatWasFoundIsAnErrorUntilItIsTakenBackOrAnnounced) {
  double weight = 1;
  define([&](const at::Tensor& x) -> NamedTensors { return {{"y", x * weight}}; });
  for (int i = 0; i < 3; ++i) run();
  weight = 2;
  for (int i = 0; i < 3; ++i) EXPECT_ERROR(run(), "was 1. when recorded and is 2. now");
  weight = 1;
  for (int i = 0; i < 70; ++i) EXPECT_EQ(number(), 1);
  weight = 2;
  while (runs_ + 1 < 89 + 3) run();  // three were none
  EXPECT_ERROR(run(), "was 1. when recorded and is 2. now");
  graph_.announce_change();
  EXPECT_EQ(number(), 2);
}

TEST_F(VerifyAgainTest, AFunctionThatThrowsDoesSoUntilItDoesNot) {
  std::vector<double> weights = {1};
  define([&](const at::Tensor& x) -> NamedTensors { return {{"y", x * weights.at(0)}}; });
  for (int i = 0; i < 3; ++i) run();
  weights.clear();
  for (int i = 0; i < 3; ++i) EXPECT_ERROR(run(), "vector");
  weights = {1};
  EXPECT_EQ(number(), 1);
}

// As a mask of what is pruned, in which nothing is at first.
TEST_F(VerifyAgainTest, ZerosThatTheHostFillsLaterAreFound) {
  float value = 0;
  const auto fill = [&](at::Tensor mask) {
    mask.data_ptr<float>()[1] = value;
    return mask;
  };
  define([&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x + fill(at::zeros({3})) + fill(at::zeros_like(x))}};
  });
  for (int i = 0; i < 4; ++i) run();
  value = 1;
  EXPECT_ERROR(run(), "before run 5, the function does something else");
}

TEST_F(VerifyAgainTest, ZerosThatTheHostFillsAreRepeated) {
  define([&](const at::Tensor& x) -> NamedTensors {
    at::Tensor mask = at::zeros({3});
    mask.data_ptr<float>()[1] = 3;
    at::Tensor counted = at::zeros({3});
    counted.data_ptr<float>()[0] = 3;
    counted.add_(1);
    return {{"y", x + mask + counted}};
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(number(), 4);
}

// One of each way in which libtorch takes numbers from the host.
struct Reading {
  std::string name;
  std::function<at::Tensor(const at::Tensor& x, float value)> function;
};
void PrintTo(const Reading& reading, std::ostream* out) { *out << reading.name; }

class HostValueTest : public testing::TestWithParam<Reading> {};

TEST_P(HostValueTest, IsFollowedOrFound) {
  for (const float later : {2.0F, 1.0001F}) {
    Graph graph;
    float value = 1;
    const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
      return {{"y", GetParam().function(x, value)}};
    });
    Session session(graph);
    run_on_ones(session, op, 3);
    value = later;
    SCOPED_TRACE(later);
    EXPECT_ERROR(run_on_ones(session, op, 4), "before run 4");
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, HostValueTest,
    testing::Values(
        Reading{"Number", [](const at::Tensor& x, float v) { return x * v; }},
        Reading{"Tensor", [](const at::Tensor& x, float v) { return x * at::scalar_tensor(v); }},
        Reading{"FilledOnTheHost",
                [](const at::Tensor& x, float v) {
                  const at::Tensor filled = at::empty({3});
                  for (int i = 0; i < 3; ++i) filled.data_ptr<float>()[i] = v;
                  return x * filled;
                }},
        Reading{"FromBlob",
                [](const at::Tensor& x, float v) {
                  std::vector<float> values(3, v);
                  return x * at::from_blob(values.data(), {3});
                }},
        Reading{"FullAndComputed",
                [](const at::Tensor& x, float v) { return x + (at::full({3}, v) + 1).log(); }},
        Reading{"Branch", [](const at::Tensor& x, float v) { return v > 1 ? x.exp() : x.sin(); }},
        Reading{"MoreOperators",
                [](const at::Tensor& x, float v) { return v > 1 ? x.exp() * 2 : x.exp(); }}),
    [](const auto& info) { return info.param.name; });

// ---- captured tensors

TEST_F(VerifyAgainTest, ACapturedTensorIsFollowedWithAllThatIsComputedFromIt) {
  const at::Tensor k = at::ones({3});
  define([k](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * (k + 1) * k.view({1, 3}).exp().log()}};
  });
  EXPECT_NEAR(number(), 2, 1e-5);
  k.fill_(2);
  EXPECT_NEAR(number(), 6, 1e-5);
  for (int i = 0; i < 20; ++i) run();
  k.fill_(3);
  EXPECT_NEAR(number(), 12, 1e-5);
}

TEST_F(VerifyAgainTest, TheGradientOfACapturedWeightOfTheCostIsFollowed) {
  const at::Tensor k = at::ones({});
  define([&, k](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::ones());
    const at::Tensor cost = (at::mv(x, w) * k).mean();
    return {{"y", torch::autograd::grad({cost}, {w})[0].expand({2, 3})}};
  });
  EXPECT_DOUBLE_EQ(number(), 1);
  k.fill_(0);
  EXPECT_DOUBLE_EQ(number(), 0);
}

TEST_F(VerifyAgainTest, ACapturedTensorThatIsReplacedIsFoundAtTheNextRun) {
  at::Tensor k = at::ones({3});
  define([&](const at::Tensor& x) -> NamedTensors { return {{"y", x * (k + 1)}}; });
  for (int i = 0; i < 5; ++i) run();
  k = at::zeros({3});
  EXPECT_ERROR(run(),
               "before run 6, the function does something else than when it was recorded; first at "
               "node 0, aten::add.Scalar: its argument 'self' is a captured tensor that was "
               "replaced by another one");
}

TEST_F(VerifyAgainTest, ACapturedTensorWithOtherMemoryIsFoundAtTheNextRun) {
  const at::Tensor k = at::ones({3});
  define([k](const at::Tensor& x) -> NamedTensors { return {{"y", x * k}}; });
  for (int i = 0; i < 5; ++i) run();
  k.set_data(at::zeros({3}));
  EXPECT_ERROR(run(), "before run 6");
}

TEST_F(VerifyAgainTest, OneThatIsReplacedByItsEqualIsFollowedFromThenOn) {
  at::Tensor k = at::ones({3});
  define([&](const at::Tensor& x) -> NamedTensors { return {{"y", x * (k + 1)}}; });
  run();
  k = at::ones({3});
  EXPECT_DOUBLE_EQ(number(), 2);
  k.fill_(2);
  EXPECT_DOUBLE_EQ(number(), 3);
}

TEST_F(VerifyAgainTest, ATensorThatTheFunctionMakesAnewInEveryCallIsNoReasonToRecordIt) {
  at::Tensor last;
  int calls = 0;
  define([&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    last = at::tensor({1.0F, 2.0F, 3.0F});
    return {{"y", x * last}};
  });
  for (int i = 0; i < 5; ++i) run();
  const int before = calls;
  for (int i = 0; i < 2; ++i) run();
  EXPECT_EQ(calls, before);
}

TEST_F(VerifyAgainTest, MemoryOfTheHostThatIsGoneAfterTheCallIsNotReadAgain) {
  define([](const at::Tensor& x) -> NamedTensors {
    std::vector<float> values(3, 4);
    const at::Tensor y = x * at::from_blob(values.data(), {3});
    std::fill(values.begin(), values.end(), -1);
    return {{"y", y}};
  });
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(number(), 4);
}

// ---- changes that are announced

TEST_F(VerifyAgainTest, AnAnnouncedChangeTakesEffectInTheNextRun) {
  double weight = 1;
  at::Tensor k = at::ones({3});
  bool adds = false;
  define([&](const at::Tensor& x) -> NamedTensors {
    return {{"y", adds ? x * k * weight + 1 : x * k * weight}};
  });
  for (int i = 0; i < 5; ++i) run();
  const auto change = [&](auto action) {
    action();
    graph_.announce_change();
    return number();
  };
  EXPECT_DOUBLE_EQ(change([&] { weight = 3; }), 3);
  EXPECT_DOUBLE_EQ(change([&] { k = at::full({3}, 2); }), 6);
  EXPECT_DOUBLE_EQ(change([&] { adds = true; }), 7);
  EXPECT_DOUBLE_EQ(change([] {}), 7);
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(number(), 7);
}

TEST_F(VerifyAgainTest, AnAnnouncedChangeReachesEveryShapeAndListOfFetches) {
  double weight = 1;
  define([&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * weight}, {"z", x + weight}};
  });
  const auto both = [&](int64_t rows) {
    const auto values = session_->run(op_, {"z", "y"}, {{"x", at::ones({rows, 3})}});
    return std::pair(values[0].mean().item<double>(), values[1].mean().item<double>());
  };
  run();
  EXPECT_EQ(both(2), std::pair(2.0, 1.0));
  EXPECT_EQ(both(5), std::pair(2.0, 1.0));
  weight = 4;
  graph_.announce_change();
  EXPECT_EQ(both(5), std::pair(5.0, 4.0));
  EXPECT_EQ(both(2), std::pair(5.0, 4.0));
  EXPECT_DOUBLE_EQ(number(), 4);
}

TEST_F(VerifyAgainTest, AnAnnouncedChangeIsFollowedWithoutVerificationToo) {
  options_.verify = false;
  double weight = 1;
  define([&](const at::Tensor& x) -> NamedTensors { return {{"y", x * weight}}; });
  run();
  weight = 2;
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(number(), 1);
  graph_.announce_change();
  EXPECT_DOUBLE_EQ(number(), 2);
}

// ---- variables with other memory

// Counts in its variable, from what that holds.
NamedTensors count_in_variable(const at::Tensor& x) {
  const at::Tensor count = get_variable("count", {3}, init::ones());
  at::NoGradGuard no_grad;
  count.add_(x[0]);
  return {{"y", x * count}};
}

TEST_F(VerifyAgainTest, AVariableWithOtherMemoryIsReadAndWrittenThereFromTheNextRunOn) {
  for (const bool verify : {true, false}) {
    for (const int before : {0, 1, 6}) {
      SCOPED_TRACE(before);
      Graph graph;
      const Op op = define_on_x(graph, count_in_variable);
      Session session(graph, {.verify = verify});
      run_on_ones(session, op, before);
      const at::Tensor count = graph.variables().at("count").tensor;
      const at::Tensor old = count.detach();
      const at::Tensor old_contents = old.clone();
      count.set_data(at::full({3}, 10.0F));
      run_on_ones(session, op, 20);
      EXPECT_TRUE(at::equal(count, at::full({3}, 30.0F))) << count;
      EXPECT_TRUE(at::equal(old, old_contents));
    }
  }
}

TEST_F(VerifyAgainTest, AVariableThatIsLaidOutOtherwiseIsFollowed) {
  define([](const at::Tensor& x) -> NamedTensors {
    return {{"y", x.mm(get_variable("W", {3, 3}, init::ones()).view({9}).view({3, 3}))},
            {"z", x.mm(get_variable("V", {3, 3}, init::ones()))}};
  });
  run();
  const at::Tensor values = at::arange(9, at::kFloat).view({3, 3});
  graph_.variables().at("V").tensor.set_data(values.t());
  const at::Tensor z = session_->run(op_, {"z"}, {{"x", at::eye(3)}})[0];
  EXPECT_TRUE(at::equal(z, values.t())) << z;
}

TEST_F(VerifyAgainTest, OtherMemoryHidesNoChangeOfTheFunction) {
  double weight = 1;
  define([&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * get_variable("W", {3}, init::ones()) * weight}};
  });
  for (int i = 0; i < 5; ++i) run();
  graph_.variables().at("W").tensor.set_data(at::full({3}, 2.0F));
  weight = 5;
  EXPECT_ERROR(run(), "before run 6, the function does something else than when it was recorded");
}

TEST_F(VerifyAgainTest, OtherMemoryIsNoChangeWhereTheFunctionFillsMemoryOnTheHost) {
  int calls = 0;
  define([&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor filled = at::empty({3});
    for (int i = 0; i < 3; ++i) filled.data_ptr<float>()[i] = static_cast<float>(calls);
    ++calls;
    return {{"y", x * get_variable("W", {3}, init::ones()) + filled * 0}};
  });
  run();
  graph_.variables().at("W").tensor.set_data(at::full({3}, 2.0F));
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(number(), 2);
}

TEST_F(VerifyAgainTest, AVariableThatTheOpDoesNotUseMayLieAnywhere) {
  options_.verify_again = false;
  int calls = 0;
  define([&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    get_variable("idle", {3});
    return {{"y", x * get_variable("W", {3}, init::ones())}};
  });
  for (int i = 0; i < 5; ++i) run();
  const int before = calls;
  graph_.variables().at("idle").tensor.set_data(at::ones({3}));
  run();
  EXPECT_EQ(calls, before);
}

// ---- requires_grad

TEST_F(VerifyAgainTest, AFrozenVariableIsFoundAtTheNextRunByName) {
  define([](const at::Tensor& x) -> NamedTensors {
    const at::Tensor a = get_variable("a", {3}, init::ones());
    const at::Tensor b = get_variable("b", {3}, init::ones());
    const at::Tensor cost = (x * a * b).sum();
    Tensors trained;
    for (const at::Tensor& w : {a, b}) {
      if (w.requires_grad()) trained.push_back(w);
    }
    const Tensors gradients = torch::autograd::grad({cost}, trained);
    at::NoGradGuard no_grad;
    for (size_t i = 0; i < trained.size(); ++i) trained[i].sub_(gradients[i] * 0.01);
    return {{"y", cost}};
  });
  for (int i = 0; i < 5; ++i) run();
  const at::Tensor a = graph_.variables().at("a").tensor;
  a.set_requires_grad(false);
  EXPECT_ERROR(run(), "the variable 'a' required gradients when recorded and does not now");
  graph_.announce_change();
  const at::Tensor before = a.clone();
  run();
  EXPECT_TRUE(at::equal(a, before));
}

TEST_F(VerifyAgainTest, AGradientThatNobodyAsksForMayBeSwitchedOff) {
  define([](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * get_variable("a", {3}, init::ones())}};
  });
  for (int i = 0; i < 5; ++i) run();
  graph_.variables().at("a").tensor.set_requires_grad(false);
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(number(), 1);
}

// ---- what is no change

TEST_F(VerifyAgainTest, AFunctionMayBeginToUseATableThatItFilledBefore) {
  std::map<int64_t, at::Tensor> tables;
  int filled = 0;
  define([&](const at::Tensor& x) -> NamedTensors {
    at::Tensor& table = tables[x.size(0)];
    if (!table.defined()) {
      ++filled;
      table = at::arange(3, at::kFloat).div(7).cos();
    }
    return {{"y", x * table}};
  });
  for (int i = 0; i < 9; ++i) {
    for (int64_t rows : {3, 4}) {
      const at::Tensor x = at::ones({rows, 3});
      const at::Tensor y = run(x);
      EXPECT_TRUE(at::equal(y, x * tables[rows]));
    }
  }
  EXPECT_EQ(filled, 3);
}

// The first batches may not show what the change is about.
TEST_F(VerifyAgainTest, OtherOperatorsThatComputeTheSameOnThisBatchAreToldOnce) {
  bool takes_positive = false;
  define([&](const at::Tensor& x) -> NamedTensors {
    VariableScope scope("rectified");
    return {{"y", takes_positive ? x.relu() : x.abs()}};
  });
  for (int i = 0; i < 4; ++i) run();
  takes_positive = true;
  std::string log = stdout_of([&] {
    for (int i = 0; i < 6; ++i) run();
  });
  EXPECT_THAT(log, HasSubstr("WRN Op 'step' is recorded again: its function does something else "
                             "than before, first at node 0, aten::abs in scope "
                             "'rectified': the function now calls aten::relu instead"));
  EXPECT_DOUBLE_EQ(run(at::full({2, 3}, -1.0F)).sum().item<double>(), 0) << "from then on";
}

TEST_F(VerifyAgainTest, NumbersWithoutEffectMayChange) {
  int calls = 0;
  define([&](const at::Tensor& x) -> NamedTensors {
    (x * ++calls).exp();
    const at::Tensor filled = at::empty({3});
    for (int i = 0; i < 3; ++i) filled.data_ptr<float>()[i] = static_cast<float>(calls);
    return {{"y", x + filled * 0}};
  });
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(number(), 1);
}

TEST_F(VerifyAgainTest, BatchesMayHaveOtherStrides) {
  define([](const at::Tensor& x) -> NamedTensors { return {{"y", x.reshape({-1}) * 2}}; });
  for (int i = 0; i < 9; ++i) {
    const at::Tensor x = batch_of(2, static_cast<float>(i));
    const at::Tensor other = i % 2 == 0 ? x : x.t().contiguous().t();
    EXPECT_TRUE(at::equal(run(other), x.reshape({-1}) * 2));
  }
}

TEST_F(VerifyAgainTest, VariablesThatAreAddedLaterAreNoChange) {
  define([](const at::Tensor& x) -> NamedTensors {
    return {{"y", x * get_variable("a", {3}, init::ones())}};
  });
  run();
  define_on_x(
      graph_,
      [](const at::Tensor& x) -> NamedTensors {
        return {{"z", x * get_variable("b", {3}, init::ones())}};
      },
      "other");
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(number(), 1);
}

TEST_F(VerifyAgainTest, RecordingAgainLeavesNoTrace) {
  const auto outcome = [](SessionOptions options) {
    Graph graph({.seed = 3});
    const at::Tensor captured = at::zeros({3});
    const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
      const at::Tensor w = get_variable("W", {3}, init::ones());
      at::NoGradGuard no_grad;
      w.sub_(at::dropout(x, 0.5, true).sum(0) * 0.01);
      captured.add_(w);
      return {{"y", w + captured}};
    });
    captured.zero_();
    Session session(graph, options);
    at::Tensor last;
    for (int i = 0; i < 20; ++i) last = session.run(op, {"y"}, {{"x", batch_of(2)}})[0];
    return last;
  };
  EXPECT_TRUE(at::equal(outcome({}), outcome({.executor = ExecutorKind::kEager})));
  EXPECT_TRUE(at::equal(outcome({}), outcome({.verify_again = false})));
}

// ---- what else a function may get from the host

TEST_F(VerifyAgainTest, AGeneratorThatIsMadeAnewInEveryCallIsFound) {
  define([](const at::Tensor& x) -> NamedTensors {
    const at::Generator fresh = at::detail::createCPUGenerator(7);
    return {{"y", x + at::rand({3}, c10::optional<at::Generator>(fresh))}};
  });
  run();
  EXPECT_THAT(error_by_twice_the_runs(), HasSubstr("its argument 'generator' was"));
}

TEST_F(VerifyAgainTest, AGeneratorOfTheFunctionsOwnIsFollowed) {
  at::Generator own = at::detail::createCPUGenerator(7);
  define([own](const at::Tensor& x) -> NamedTensors {
    return {{"y", x + at::rand({3}, c10::optional<at::Generator>(own))}};
  });
  own.set_current_seed(7);
  at::Generator same = at::detail::createCPUGenerator(7);
  for (int i = 0; i < 9; ++i) {
    const at::Tensor expected =
        at::ones({2, 3}) + at::rand({3}, c10::optional<at::Generator>(same));
    EXPECT_TRUE(at::equal(run(), expected)) << i;
  }
}

TEST_F(VerifyAgainTest, ABranchOnTheDataIsFoundWhereABatchShowsIt) {
  define([](const at::Tensor& x) -> NamedTensors {
    return {{"y", x.data_ptr<float>()[0] > 50 ? x * 100 : x * 2}};
  });
  for (int i = 0; i < 7; ++i) run();
  EXPECT_ERROR(run(at::full({2, 3}, 99.0F)), "its argument 'other' was 2 when recorded and is 100");
}

TEST_F(VerifyAgainTest, CanBeSwitchedOff) {
  options_.verify_again = false;
  double weight = 1;
  define([&](const at::Tensor& x) -> NamedTensors { return {{"y", x * weight}}; });
  run();
  weight = 2;
  for (int i = 0; i < 20; ++i) EXPECT_DOUBLE_EQ(number(), 1);
}

TEST_F(VerifyAgainTest, AfterAFailureVariablesAreAsBefore) {
  double step = 1;
  define([&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::zeros());
    at::NoGradGuard no_grad;
    w.add_(x.sum(0), step);
    return {{"y", w * 1}};
  });
  run();
  step = 2;
  EXPECT_ERROR(run(), "before run 2");
  EXPECT_TRUE(at::equal(graph_.variables().at("W").tensor, at::full({3}, 2.0F)));
}

// A function that asks another session is recorded with the other's function, whatever programs
// that has made by then.
TEST_F(VerifyAgainTest, ASessionThatTheFunctionAsksIsRecordedAlikeEachTime) {
  Graph other({.seed = 1});
  const Op scale = define_on_x(
      other,
      [](const at::Tensor& x) -> NamedTensors {
        return {{"scaled", x * get_variable("s", {3}, init::constant(2))}};
      },
      "scale");
  Session asked(other);
  define([&](const at::Tensor& x) -> NamedTensors {
    return {{"y", asked.run(scale, {"scaled"}, {{"x", x}})[0] + 1}};
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_DOUBLE_EQ(number(), 3);
    asked.run(scale, {"scaled"}, {{"x", at::ones({2, 3})}});
  }
  other.variables().at("s").assign(at::full({3}, 5.0F));
  EXPECT_DOUBLE_EQ(number(), 6);
}

}  // namespace
}  // namespace tensorpack
