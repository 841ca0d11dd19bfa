// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "tensorpack/dataflow/stage_report.h"
#include "tensorpack/graph/gradient_scopes.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/monitors/report/environment.h"
#include "tensorpack/monitors/report/layers.h"
#include "tensorpack/monitors/report/page.h"
#include "tensorpack/monitors/run_setup.h"
#include "tensorpack/monitors/scalar_printer.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::SizeIs;

class ReportTest : public testing::Test {
 protected:
  Report make_report() const { return Report({.path = path_, .max_share = 1e9}); }

  std::string page() const { return read_file(path_); }
  json data() const { return json::parse(report::data_in_page(page())); }

  // The steps and values of a scalar, as the page shows them.
  static std::vector<std::pair<int64_t, json>> points(const json& data, const std::string& name) {
    std::vector<std::pair<int64_t, json>> points;
    const json& series = data.at("scalars").at(name);
    int64_t step = 0;
    for (size_t i = 0; i < series.at("steps").size(); ++i) {
      step += series.at("steps")[i].get<int64_t>();
      points.emplace_back(step, series.at("values")[i]);
    }
    return points;
  }

  // Makes epochs of two steps as a trainer does; the scalar "cost" is the number of the step.
  void train(Report& report, int64_t first_epoch, int64_t last_epoch, int64_t kill_after = -1) {
    loop_ = {.epoch_num = first_epoch - 1,
             .global_step = 2 * (first_epoch - 1),
             .steps_per_epoch = 2,
             .starting_epoch = first_epoch,
             .max_epoch = last_epoch};
    report.before_train(loop_);
    for (loop_.epoch_num = first_epoch; loop_.epoch_num <= last_epoch; ++loop_.epoch_num) {
      for (loop_.local_step = 0; loop_.local_step < 2; ++loop_.local_step) {
        ++loop_.global_step;
        report.process_scalar("cost", static_cast<double>(loop_.global_step), loop_);
        report.trigger_step(loop_);
      }
      --loop_.local_step;
      report.trigger_epoch(loop_);
      if (loop_.epoch_num == kill_after) return;
    }
    --loop_.epoch_num;
    report.after_train(loop_);
  }

  TempDir dir_;
  fs::path path_ = dir_ / "report.html";
  LoopState loop_;
};

TEST_F(ReportTest, HasEveryScalarWithItsSteps) {
  Report report = make_report();
  train(report, 1, 2);
  EXPECT_THAT(points(data(), "cost"), ElementsAre(Pair(1, 1), Pair(2, 2), Pair(3, 3), Pair(4, 4)));
  EXPECT_EQ(data()["progress"]["state"], "finished");
  EXPECT_EQ(data()["progress"]["epoch"], 2);
  EXPECT_EQ(data()["name"], dir_.path().filename().string());
}

TEST_F(ReportTest, IsOnePageThatLoadsNothing) {
  Report report = make_report();
  train(report, 1, 1);
  EXPECT_THAT(page(), HasSubstr("<!DOCTYPE html>"));
  EXPECT_THAT(page(), HasSubstr("default-src 'none'"));
  for (const char* outside : {"src=\"", "href=\"style", "http://", "https://", "@import", "url("}) {
    EXPECT_THAT(page(), Not(HasSubstr(outside)));
  }
}

TEST_F(ReportTest, NamesAreNeverMarkup) {
  const std::string name = "</script><script>alert(1)</script><!-- \"&'";
  Report report = make_report();
  loop_.max_epoch = 1;
  report.before_train(loop_);
  report.process_scalar(name, 1, loop_);
  report.process_text(name, name, loop_);
  report.process_histogram(name, make_histogram(at::arange(4)), loop_);
  report.process_hyper_params({{name, name}}, loop_);
  report.after_train(loop_);
  EXPECT_THAT(std::string(report::data_in_page(page())), Not(HasSubstr("<")));
  EXPECT_TRUE(data()["scalars"].contains(name));
  EXPECT_EQ(data()["texts"][name][0]["text"], name);
  EXPECT_EQ(data()["configuration"], json::array({{name, name}}));
}

TEST_F(ReportTest, ATextThatIsNotUtf8IsShownAsFarAsItCanBe) {
  Report report = make_report();
  report.before_train(loop_);
  report.process_scalar("caf\xe9", 1, loop_);
  report.process_text("note", "a\xff z", loop_);
  report.after_train(loop_);
  EXPECT_THAT(data()["texts"]["note"][0]["text"].get<std::string>(), HasSubstr(" z"));
  EXPECT_THAT(data()["scalars"], SizeIs(1));
}

TEST_F(ReportTest, ValuesThatAreNotFiniteAreNamed) {
  Report report = make_report();
  report.before_train(loop_);
  for (const double value : std::vector<double>{1, NAN, INFINITY, -INFINITY}) {
    ++loop_.global_step;
    report.process_scalar("cost", value, loop_);
  }
  report.after_train(loop_);
  EXPECT_EQ(data()["scalars"]["cost"]["values"], json::array({1, "nan", "inf", "-inf"}));
}

TEST_F(ReportTest, ShowsImagesHistogramsAndTexts) {
  Report report = make_report();
  report.before_train(loop_);
  for (loop_.global_step = 1; loop_.global_step <= 3; ++loop_.global_step) {
    report.process_image("samples", Image(at::zeros({4, 5})), loop_);
    report.process_histogram("weights", make_histogram(at::arange(10), 5), loop_);
    report.process_text("note", fmt::format("step {}", loop_.global_step), loop_);
  }
  report.after_train(loop_);
  EXPECT_THAT(data()["images"]["samples"], SizeIs(3));
  EXPECT_THAT(data()["images"]["samples"][0]["png"].get<std::string>(),
              testing::StartsWith("iVBORw0KGgo"));  // the signature of a PNG file
  EXPECT_EQ(data()["histograms"]["weights"][2],
            json({{"step", 3}, {"low", 0}, {"high", 9}, {"counts", {2, 2, 2, 2, 2}}}));
  EXPECT_EQ(data()["texts"]["note"], json::array({{{"step", 3}, {"text", "step 3"}}}));
}

TEST_F(ReportTest, ALongRunWithLargeImagesStaysBelowTwoMegabytes) {
  at::manual_seed(0);
  Report report = make_report();
  report.before_train(loop_);
  const Image noise(at::randint(256, {400, 400, 3}));
  for (int64_t epoch = 1; epoch <= 100; ++epoch) {
    for (int64_t step = 0; step < 100; ++step) {
      ++loop_.global_step;
      for (int i = 0; i < 200; ++i) {
        report.process_scalar(fmt::format("scalar{}", i), std::sin(0.37 * loop_.global_step),
                              loop_);
      }
    }
    if (epoch % 10 == 0) report.process_image("noise", noise, loop_);
    for (int i = 0; i < 150; ++i) {
      report.process_histogram(fmt::format("histogram{}", i), make_histogram(at::randn(100)),
                               loop_);
    }
  }
  report.after_train(loop_);
  EXPECT_LT(fs::file_size(path_), 2'000'000);
  const json shown = data();
  EXPECT_THAT(shown["scalars"], SizeIs(200));
  EXPECT_EQ(points(shown, "scalar7").back().first, 10'000);
  EXPECT_EQ(shown["scalars"]["scalar7"]["count"], 10'000);
  EXPECT_GE(points(shown, "scalar7").size(), 200);
  EXPECT_GE(shown["images"]["noise"].size(), 2);
  EXPECT_EQ(shown["histograms"]["histogram3"].back()["step"], 10'000);
  EXPECT_LE(shown["histograms"]["histogram3"].front()["step"], 1500);
  EXPECT_GE(shown["histograms"]["histogram3"].size(), 6);
}

TEST_F(ReportTest, IsWholeAtEveryMoment) {
  Report report = make_report();
  report.before_train(loop_);
  report.trigger_epoch(loop_);
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    for (int i = 0; i < 100; ++i) {
      report.process_scalar("cost", i, loop_);
      report.trigger_epoch(loop_);
    }
    ended = true;
  });
  while (!ended) {
    const std::string text = page();
    EXPECT_THAT(text, testing::EndsWith("</html>\n"));
    EXPECT_TRUE(json::accept(report::data_in_page(text)));
  }
  writer.join();
}

TEST_F(ReportTest, AResumedTrainingGoesOnWithItsReport) {
  {
    Report killed = make_report();
    train(killed, 1, 9, /*kill_after=*/3);
  }
  // The checkpoint is that of epoch 2: the third is made again.
  Report report = make_report();
  train(report, 3, 4);
  std::vector<std::pair<int64_t, json>> expected;
  for (int64_t step = 1; step <= 8; ++step) expected.emplace_back(step, step);
  EXPECT_EQ(points(data(), "cost"), expected);
  const json times = data()["scalars"]["cost"]["times"];
  EXPECT_TRUE(std::ranges::all_of(times, [](const json& delta) { return delta >= 0; })) << times;
}

TEST_F(ReportTest, AResumedTrainingKeepsImagesAndHistograms) {
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    Report report = make_report();
    loop_ = {.global_step = epoch - 1, .starting_epoch = epoch};
    report.before_train(loop_);
    ++loop_.global_step;
    report.process_image("samples", Image(at::zeros({2, 2})), loop_);
    report.process_histogram("weights", make_histogram(at::arange(4)), loop_);
    report.after_train(loop_);
  }
  EXPECT_THAT(data()["images"]["samples"], SizeIs(2));
  EXPECT_THAT(data()["histograms"]["weights"], SizeIs(2));
}

TEST_F(ReportTest, WhatIsReportedBeforeTrainingComesAfterWhatWasThere) {
  {
    Report report = make_report();
    train(report, 1, 1);
  }
  Report report = make_report();
  report.process_scalar("cost", 77, {.global_step = 2});  // by another callback's before_train()
  train(report, 2, 2);
  EXPECT_THAT(points(data(), "cost"),
              ElementsAre(Pair(1, 1), Pair(2, 2), Pair(2, 77), Pair(3, 3), Pair(4, 4)));
}

TEST_F(ReportTest, TheReportOfAnotherTrainingIsKeptUnderAnotherName) {
  for (int i = 0; i < 2; ++i) {
    Report report = make_report();
    train(report, 1, 1);
  }
  std::vector<std::string> others;
  for (const auto& file : fs::directory_iterator(dir_.path())) {
    const std::string name = file.path().filename();
    if (name != "report.html") others.push_back(name);
  }
  EXPECT_THAT(others, ElementsAre(testing::MatchesRegex("report\\.[0-9]{4}-[0-9]{6}\\.html")));
  EXPECT_THAT(points(data(), "cost"), SizeIs(2));
}

TEST_F(ReportTest, AFileThatIsNoReportIsMovedAway) {
  write_file_atomically(path_, "my notes");
  Report report = make_report();
  train(report, 2, 2);
  EXPECT_THAT(points(data(), "cost"), SizeIs(2));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), {}), 2);
}

TEST_F(ReportTest, ACheckpointFindsTheNumbersThatBelongToIt) {
  Report report({.path = path_, .max_share = 1e-9});  // so that epochs are not written
  report.before_train(loop_);
  report.trigger_epoch(loop_);
  loop_.global_step = 5;
  report.process_scalar("cost", 1, loop_);
  report.trigger_epoch(loop_);
  EXPECT_TRUE(data()["scalars"].empty());
  report.flush();
  EXPECT_THAT(points(data(), "cost"), ElementsAre(Pair(5, 1)));
}

TEST_F(ReportTest, IsThereFromTheFirstStepOn) {
  Report report({.path = path_});
  loop_.steps_per_epoch = 9;
  report.before_train(loop_);
  VariableStore variables;
  report.process_hyper_params({{"device", "cpu"}}, loop_);
  report.process_setup({.variables = variables}, loop_);
  loop_.local_step = 0;
  report.trigger_step(loop_);
  EXPECT_EQ(data()["progress"]["state"], "running");
  EXPECT_EQ(data()["configuration"], json::array({{"device", "cpu"}}));
}

TEST_F(ReportTest, ATrainingThatEndsEarlySaysSo) {
  Report report = make_report();
  loop_ = {.epoch_num = 2, .local_step = 0, .global_step = 3, .steps_per_epoch = 2, .max_epoch = 5};
  report.before_train(loop_);
  report.after_train(loop_);
  EXPECT_EQ(data()["progress"]["state"], "stopped");
}

TEST_F(ReportTest, AFileThatCannotBeWrittenIsReportedOnce) {
  Report report({.path = dir_ / "missing" / "report.html", .max_share = 1e9});
  const std::string output = stdout_of([&] { train(report, 1, 3); });
  const size_t first = output.find("Training goes on.");
  EXPECT_NE(first, std::string::npos) << output;
  EXPECT_EQ(output.rfind("Training goes on."), first) << output;
}

TEST_F(ReportTest, WithoutALogDirectoryWritesNothing) {
  reset_logger_dir();
  Report report;
  train(report, 1, 1);
  EXPECT_FALSE(report.wants_graph());
  EXPECT_TRUE(Report::default_path().empty());
}

TEST_F(ReportTest, ShowsTheEndOfTheLog) {
  set_logger_dir(dir_ / "log");
  logging::info("a line of the <log>");
  Report report;
  train(report, 1, 1);
  const json data = json::parse(report::data_in_page(read_file(dir_ / "log" / "report.html")));
  EXPECT_THAT(data["log"].get<std::string>(), HasSubstr("a line of the <log>"));
  EXPECT_EQ(data["name"], "log");
  reset_logger_dir();
}

TEST_F(ReportTest, ShowsTheModelOfATraining) {
  FakeTrainer trainer;
  trainer.train({}, {make_report()});
  const json shown = data();
  ASSERT_THAT(shown["parameters"], SizeIs(1));  // neither the step counter nor statistics
  EXPECT_EQ(shown["parameters"][0]["name"], "w");
  EXPECT_EQ(shown["parameters"][0]["trained"], false);
  ASSERT_THAT(shown["layers"], SizeIs(1));
  EXPECT_THAT(shown["layers"][0]["operators"][0][0].get<std::string>(), HasSubstr("aten::add_"));
  EXPECT_EQ(shown["layers"][0]["operators"][0][1], "[]");
  EXPECT_THAT(shown["configuration"], testing::Contains(json::array({"precision", "float32"})));
  const auto is_libtorch = [](const json& fact) { return fact[0] == "libtorch"; };
  EXPECT_TRUE(std::ranges::any_of(shown["environment"], is_libtorch));
}

TEST_F(ReportTest, OperatorsOfTheBackwardPassAreWithTheirLayers) {
  EXPECT_EQ(layer_of_scope("conv0/bn").layer, "conv0/bn");
  EXPECT_EQ(layer_of_scope("gradients/conv0").layer, "conv0");
  EXPECT_TRUE(layer_of_scope("gradients/conv0").is_backward);
  EXPECT_TRUE(layer_of_scope("gradients").is_backward);
  EXPECT_FALSE(layer_of_scope("gradients2").is_backward) << "a layer of a user's";
  Graph graph;
  SGD sgd;
  const Op op = graph.define({.name = "step",
                              .inputs = {{"x", {-1, 3}}},
                              .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
                                TowerContext tower(graph);
                                const VariableScope scope("fc");
                                const at::Tensor w = get_variable("W", {3, 3}, init::ones());
                                minimize(sgd, in[0].mm(w).mean(), graph.variables().trainable());
                                return {};
                              }});
  const auto layers = report::list_layers(Session(graph).trace(op));
  const auto fc = std::ranges::find(layers, "fc", &report::Layer::path);
  ASSERT_NE(fc, layers.end());
  const auto has = [&](const std::string& op) {
    return std::ranges::any_of(fc->operators, [&](const auto& one) { return one.first == op; });
  };
  EXPECT_TRUE(has("aten::mm"));
  EXPECT_TRUE(has("aten::mm (backward)"));
  EXPECT_EQ(std::ranges::count(layers, "gradients/fc", &report::Layer::path), 0);
}

TEST_F(ReportTest, ShowsWhatLayersTookInAProfile) {
  Report report = make_report();
  report.before_train(loop_);
  report.process_graph(Trace(), loop_);
  report.process_profile({{.layer = "conv0", .forward = 0.5, .backward = 1, .bytes = 64}}, loop_);
  report.process_profile({{.layer = "conv0", .forward = 0.25}}, loop_);
  report.after_train(loop_);
  ASSERT_THAT(data()["layers"], SizeIs(1));
  EXPECT_EQ(data()["layers"][0]["path"], "conv0");
  EXPECT_EQ(data()["layers"][0]["forward"], 0.25) << "the newest counts";
}

TEST_F(ReportTest, ShowsWhatTheStagesOfTheDataDid) {
  Report report = make_report();
  report.before_train(loop_);
  report.process_stages({{.name = "FromList"}}, loop_);
  report.process_stages({{.name = "parallel_map",
                          .threads = 2,
                          .busy_seconds = 3,
                          .upstream_wait_seconds = 0.5,
                          .downstream_wait_seconds = 0.25,
                          .queue_depth = 4,
                          .capacity = 8}},
                        loop_);
  report.after_train(loop_);
  EXPECT_EQ(data()["stages"], nlohmann::json::array({{{"name", "parallel_map"},
                                                      {"threads", 2},
                                                      {"busy", 3.0},
                                                      {"no_input", 0.5},
                                                      {"no_room", 0.25},
                                                      {"queue", 4.0},
                                                      {"capacity", 8}}}))
      << "the newest counts";
}

TEST_F(ReportTest, IsOneMonitorAmongOthers) {
  // Every five minutes within an epoch, and never more than a thousandth of the time.
  OwnedList<MonitorBase> monitors{JSONWriter(), ScalarPrinter(),
                                  Report({.period = 300, .max_share = 0.001})};
  set_logger_dir(dir_ / "log");
  FakeTrainer trainer;
  trainer.train({}, std::move(monitors));
  EXPECT_TRUE(fs::exists(Report::default_path()));
  reset_logger_dir();
}

TEST_F(ReportTest, WrongOptionsAreRefused) {
  EXPECT_THAT([] { Report({.period = -1}); },
              testing::ThrowsMessage<Error>(HasSubstr("[Report] the period, -1")));
}

}  // namespace
}  // namespace tensorpack
