// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/hooked_session.h"

#include <gmock/gmock.h>

#include "tests/session/models.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;

// Asks for what it is told to, and writes down what happened.
class RecordingHook : public Hook {
 public:
  RecordingHook(std::string name, RunArgs args, std::vector<std::string>& events)
      : name_(std::move(name)), args_(std::move(args)), events_(events) {}

  RunArgs before_run(RunContext&) override {
    events_.push_back(name_ + " before");
    return args_;
  }
  void after_run(RunContext& context, const FetchedValues& values) override {
    events_.push_back(name_ + " after " + context.op().name());
    values_ = values.get();
    if (stops_) context.request_stop();
  }

  const Tensors& values() const { return values_; }
  void stop() { stops_ = true; }

 private:
  std::string name_;
  RunArgs args_;
  std::vector<std::string>& events_;
  Tensors values_;
  bool stops_ = false;
};

class HookedSessionTest : public testing::Test {
 protected:
  HookedSessionTest() : op_(define_regression(graph_)), session_(graph_) {}

  Graph graph_;
  Op op_;
  Session session_;
  std::vector<std::string> events_;
};

TEST_F(HookedSessionTest, EachHookGetsTheValuesOfThatVeryRun) {
  RecordingHook a("a", {.fetches = {"cost", "W"}}, events_);
  RecordingHook b("b", {.fetches = {"cost"}}, events_);
  HookedSession hooked(session_, {&a, &b});
  const at::Tensor start = graph_.variables().at("W").tensor.detach().clone();
  const at::Tensor x = batch_of(2);
  const Tensors values = hooked.run(op_, {"gradient"}, {{"x", x}}).get();
  ASSERT_EQ(values.size(), 1U);
  ASSERT_EQ(a.values().size(), 2U);
  EXPECT_TRUE(at::equal(a.values()[0], at::mv(x, start).pow(2).mean()));
  EXPECT_TRUE(at::equal(a.values()[1], graph_.variables().at("W").tensor));
  EXPECT_TRUE(at::equal(b.values()[0], a.values()[0]));
  EXPECT_THAT(events_, ElementsAre("a before", "b before", "a after step", "b after step"));
}

TEST_F(HookedSessionTest, HooksMayFeed) {
  RecordingHook feeder("a", {.fetches = {}, .feeds = {{"x", batch_of(2)}}}, events_);
  HookedSession hooked(session_, {&feeder});
  EXPECT_EQ(hooked.run(op_, {"cost"}).size(), 1U);
}

TEST_F(HookedSessionTest, ConflictingFeedsAreRefused) {
  RecordingHook feeder("a", {.fetches = {}, .feeds = {{"x", batch_of(2)}}}, events_);
  HookedSession with_caller(session_, {&feeder});
  EXPECT_ERROR(with_caller.run(op_, {}, {{"x", batch_of(2)}}), "the input 'x' is fed twice");
  HookedSession with_other(session_, {&feeder, &feeder});
  EXPECT_ERROR(with_other.run(op_), "the input 'x' is fed twice");
}

TEST_F(HookedSessionTest, AStopEndsLaterRuns) {
  RecordingHook a("a", {}, events_);
  HookedSession hooked(session_, {&a});
  hooked.run(op_, {}, {{"x", batch_of(2)}});
  EXPECT_FALSE(hooked.should_stop());
  a.stop();
  hooked.run(op_, {}, {{"x", batch_of(2)}});
  EXPECT_TRUE(hooked.should_stop());
  EXPECT_ERROR(hooked.run(op_, {}, {{"x", batch_of(2)}}), "is run after a stop was requested");
}

TEST_F(HookedSessionTest, HostOpsAreSeenToo) {
  RecordingHook a("a", {.fetches = {"W"}}, events_);
  HookedSession hooked(session_, {&a});
  hooked.run(Op::nothing());
  EXPECT_EQ(a.values().size(), 1U);
}

TEST_F(HookedSessionTest, AHookMayRunAnotherOpMeanwhile) {
  // Runs an op of its own through the hooked session, once.
  class Nested : public Hook {
   public:
    RunArgs before_run(RunContext&) override { return {.fetches = {"cost"}}; }
    void after_run(RunContext&, const FetchedValues& values) override {
      EXPECT_EQ(values.size(), 1U);
      if (std::exchange(done_, true)) return;
      hooked->run(*op, {"cost"}, {{"x", batch_of(2)}});
    }
    HookedSession* hooked = nullptr;
    const Op* op = nullptr;

   private:
    bool done_ = false;
  } nested;
  RecordingHook last("last", {.fetches = {"gradient"}}, events_);
  HookedSession hooked(session_, {&nested, &last});
  nested.hooked = &hooked;
  nested.op = &op_;
  EXPECT_EQ(hooked.run(op_, {"W"}, {{"x", batch_of(2)}}).size(), 1U);
}

}  // namespace
}  // namespace tensorpack
