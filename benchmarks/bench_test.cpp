// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/bench.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "benchmarks/peer_process.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::bench {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// A side that takes `seconds` for each step by its own word.
auto takes(double seconds) {
  return [=](int64_t steps) { return seconds * static_cast<double>(steps); };
}

TEST(StopwatchTest, RatioIsPeerOverOurs) {
  auto figure =
      Stopwatch().compare({.ours = takes(1e-3), .peer = takes(4e-3), .peer_name = "slow"});
  EXPECT_THAT(figure.value, DoubleNear(4, 1e-9));
  EXPECT_THAT(*figure.ours, DoubleNear(1000, 1e-6));
  EXPECT_THAT(*figure.peer, DoubleNear(4000, 1e-6));
  EXPECT_EQ(figure.unit, "ratio");
  EXPECT_EQ(figure.repetitions, 9);
}

TEST(StopwatchTest, MedianIgnoresAnOutlier) {
  int calls = 0;
  auto figure = Stopwatch(3).measure({
      .step = [&](int64_t) { return ++calls == 3 ? 100.0 : 1.0; },
      .min_seconds = 0.5,
  });
  EXPECT_EQ(calls, 4);  // one to find the number of steps, then three repetitions
  EXPECT_EQ(figure.value, 1e6);
  EXPECT_EQ(figure.repetitions, 3);
}

TEST(StopwatchTest, SidesAlternate) {
  std::string order;
  Stopwatch(4).compare({
      .ours = [&](int64_t) { return order += 'o', 1.0; },
      .peer = [&](int64_t) { return order += 'p', 1.0; },
  });
  EXPECT_EQ(order,
            "op"
            "op"
            "po"
            "op"
            "po");
}

TEST(StopwatchTest, AnyNumberOfSidesTakesTurns) {
  std::string order;
  const auto side = [&](char name) {
    return [&order, name](int64_t) { return order += name, 1.0; };
  };
  const auto medians = Stopwatch(2).alternate({.sides = {side('a'), side('b'), side('c')}});
  EXPECT_EQ(order, "abcabccba");
  EXPECT_THAT(medians, ElementsAre(1e6, 1e6, 1e6));
}

TEST(SuiteTest, WritesWhatRanAndLeavesOutWhatWasSkipped) {
  auto path = std::filesystem::path(testing::TempDir()) / "bench_test.json";
  Suite suite;
  suite.add("a/ratio", [](const Stopwatch& watch) {
    return watch.compare({.ours = takes(1), .peer = takes(2), .peer_name = "slow"});
  });
  suite.add("a/skipped", [](const Stopwatch&) -> Figure { throw Skip("no such peer"); });
  suite.add("b/other", [](const Stopwatch&) -> Figure { throw Error("must not run"); });
  EXPECT_THAT(suite.names(), ElementsAre("a/ratio", "a/skipped", "b/other"));

  EXPECT_EQ(suite.run({.filter = "a/", .repetitions = 1, .json_path = path.string()}), 0);
  auto json = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(json, nlohmann::json::parse(R"([{"name": "a/ratio", "value": 2.0, "unit": "ratio",
      "ours": 1e6, "peer": 2e6, "peer_name": "slow", "repetitions": 1}])"));
  EXPECT_EQ(suite.run({}), 1) << "b/other failed";
}

TEST(SuiteTest, FilterThatMatchesNothingThrows) {
  Suite suite;
  EXPECT_EQ(suite.run({}), 0) << "an empty suite is fine";
  EXPECT_THAT([&] { suite.run({.filter = "engine/"}); },
              ThrowsMessage<Error>(HasSubstr("no benchmark's name contains 'engine/'")));
}

TEST(PeerProcessTest, AnswersEachRequest) {
  PeerProcess peer({"sh", "-c", "echo ready; while read n; do echo $n.5; done"});
  EXPECT_EQ(peer(3), 3.5);
  EXPECT_EQ(peer(10), 10.5);
}

TEST(PeerProcessTest, FactsStandBehindReady) {
  PeerProcess peer({"sh", "-c", "echo 'ready {\"parameters\": 3}'; read n; echo 7"});
  EXPECT_EQ(peer.facts(), "{\"parameters\": 3}");
  EXPECT_EQ(peer.ask("memory"), 7);
}

TEST(PeerProcessTest, PeerThatCannotServeIsSkipped) {
  auto start = [](const char* script) { return [=] { PeerProcess({"sh", "-c", script}); }; };
  EXPECT_THAT(start("echo skip: no torch"), ThrowsMessage<Skip>("no torch"));
  EXPECT_THAT(start("exit 3"), ThrowsMessage<Skip>(HasSubstr("ended before it was ready")));
  EXPECT_THAT([] { PeerProcess({"/nonexistent/peer"}); },
              ThrowsMessage<Skip>(HasSubstr("cannot start '/nonexistent/peer'")));
}

TEST(PeerProcessTest, PeerThatDiesFailsTheEntry) {
  const auto error_of = [](const char* script) {
    return [=] { PeerProcess({"sh", "-c", script})(1); };
  };
  EXPECT_THAT(error_of("echo ready; read n; exit 3"),
              ThrowsMessage<Error>(HasSubstr("it ended with status 3")));
  EXPECT_THAT(error_of("echo ready; read n; kill -SEGV $$"),
              ThrowsMessage<Error>(HasSubstr("it was ended by signal 11")));
  EXPECT_THAT(error_of("echo ready; read n; echo soon"),
              ThrowsMessage<Error>(HasSubstr("answered 'soon'")));
}

TEST(PeerProcessTest, PythonPeerTimesItself) {
  if (!std::filesystem::exists("/usr/bin/python3")) GTEST_SKIP() << "no Python on this machine";
  auto peer = PeerProcess::python("sleep.py", {"0.01"});
  EXPECT_GE(peer(2), 0.02);
}

}  // namespace
}  // namespace tensorpack::bench
