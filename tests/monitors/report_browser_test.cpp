// SPDX-License-Identifier: Apache-2.0
// The report as a person meets it: in a browser, with a mouse, with the keyboard, on a phone.
//
// TENSORPACK_SCREENSHOTS=<directory> has the tests leave pictures of what they see.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>
#include <optional>

#include "tensorpack/monitors/report.h"
#include "tensorpack/monitors/run_setup.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/browser.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;

// A report with something in every section.
void write_report(const fs::path& path, int64_t steps, double scale = 1) {
  fs::create_directories(path.parent_path());
  at::manual_seed(0);
  Report report({.path = path});
  LoopState loop{.steps_per_epoch = steps, .max_epoch = 1};
  report.before_train(loop);
  VariableStore variables;
  report.process_hyper_params({{"device", "cpu"}, {"scale", fmt::format("{}", scale)}}, loop);
  report.process_setup({.variables = variables}, loop);
  for (loop.local_step = 0; loop.local_step < steps; ++loop.local_step) {
    ++loop.global_step;
    const double x = static_cast<double>(loop.global_step) / 100;
    report.process_scalar("cost", scale * std::exp(-x) + 0.02 * std::sin(40 * x), loop);
    report.process_scalar("train/<i>error</i>", x == 1 ? NAN : scale / (1 + x), loop);
    if (loop.global_step % 50 != 0) continue;
    report.process_histogram("weights", make_histogram(at::randn(1000)), loop);
    report.process_image("samples", Image(at::arange(64 * 32).reshape({32, 64}).remainder(256)),
                         loop);
    report.process_text("note", "a <b>note</b>, **strong** and `code`", loop);
  }
  --loop.local_step;
  loop.epoch_num = 1;
  report.after_train(loop);
}

class ReportPageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Browser::program().empty()) {
      GTEST_SKIP() << "there is no browser: apt-get install chromium";
    }
    browser_.emplace(dir_ / "profile");
    browser_->resize(1200, 900);
  }

  void TearDown() override {
    if (!browser_) return;
    EXPECT_THAT(browser_->problems(), IsEmpty());
    if (const auto folder = env("TENSORPACK_SCREENSHOTS")) {
      const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
      std::ofstream(fs::path(*folder) / (name + ".png.base64")) << browser_->screenshot();
    }
  }

  void open(int64_t steps = 200) {
    write_report(path_, steps);
    browser_->open("file://" + path_.string());
    browser_->settle();
  }

  json evaluate(const std::string& expression) { return browser_->evaluate(expression); }
  std::string text_of(const std::string& selector) {
    return evaluate("document.querySelector('" + selector + "').textContent").get<std::string>();
  }
  // A place in the first chart, by shares of its width and height.
  std::pair<double, double> place(double x, double y) {
    const json box = evaluate(
        "(b => [b.left, b.top, b.width, b.height])"
        "(document.querySelector('.plot').getBoundingClientRect())");
    return {box[0].get<double>() + x * box[2].get<double>(),
            box[1].get<double>() + y * box[3].get<double>()};
  }
  void drag(double from, double to) {
    const auto [x0, y] = place(from, 0.5);
    const auto [x1, _] = place(to, 0.5);
    browser_->mouse("mouseMoved", x0, y);
    browser_->mouse("mousePressed", x0, y, 1);
    browser_->mouse("mouseMoved", x1, y);
    browser_->mouse("mouseReleased", x1, y, 1);
  }

  TempDir dir_;
  fs::path path_ = dir_ / "run" / "report.html";
  std::optional<Browser> browser_;
};

TEST_F(ReportPageTest, ShowsEverySection) {
  open();
  EXPECT_EQ(text_of("h1"), "run");
  EXPECT_THAT(text_of("#status"), HasSubstr("epoch 1 of 1 · step 200 · finished"));
  EXPECT_EQ(evaluate("document.querySelectorAll('#charts .card').length"), 2);
  EXPECT_EQ(evaluate("[...document.querySelectorAll('nav a')].map(a => a.textContent).join()"),
            "Scalars,Images,Histograms,Texts,Configuration,Environment");
  EXPECT_EQ(evaluate("document.querySelectorAll('#charts h3')[1].textContent"),
            "train/<i>error</i>");
  EXPECT_EQ(text_of("#texts .text"), "a <b>note</b>, strong and code");
  EXPECT_EQ(text_of("#texts strong"), "strong");
  EXPECT_EQ(evaluate("document.querySelector('#images img').naturalWidth"), 64);
}

TEST_F(ReportPageTest, TheStagesOfTheDataAreATable) {
  fs::create_directories(path_.parent_path());
  Report report({.path = path_});
  const LoopState loop{.global_step = 1, .steps_per_epoch = 1, .max_epoch = 1};
  report.before_train(loop);
  report.process_stages({{.name = "FromList", .busy_seconds = 0.25},
                         {.name = "QueueInput",
                          .threads = 1,
                          .busy_seconds = 90,
                          .queue_depth = 12.5,
                          .capacity = 50}},
                        loop);
  report.after_train(loop);
  browser_->open("file://" + path_.string());
  EXPECT_EQ(
      evaluate("[...document.querySelectorAll('#stage-table tbody tr')]"
               ".map(row => [...row.cells].map(cell => cell.textContent).join('|'))"),
      json::array({"FromList||250 ms|0 s|0 s|", "QueueInput|1|1 min 30 s|0 s|0 s|12.5 of 50"}));
}

TEST_F(ReportPageTest, ScalarsOfOnePrefixAreAGroup) {
  fs::create_directories(path_.parent_path());
  Report report({.path = path_});
  const LoopState loop{.global_step = 1, .steps_per_epoch = 1, .max_epoch = 1};
  report.before_train(loop);
  for (const char* name : {"train/cost", "train/error", "alone/size", "Speed (samples/sec)", "z"}) {
    report.process_scalar(name, 1, loop);
  }
  report.after_train(loop);
  browser_->open("file://" + path_.string());
  EXPECT_EQ(evaluate("[...document.querySelectorAll('.group summary:first-child')]"
                     ".filter(s => s.parentElement.className === 'group').map(s => s.textContent)"),
            json::array({"General (3)", "train (2)"}));
  EXPECT_EQ(evaluate("[...document.querySelectorAll('#charts h3')].map(h => h.textContent)"),
            json::array({"alone/size", "Speed (samples/sec)", "z", "cost", "error"}));
  EXPECT_EQ(evaluate("document.querySelectorAll('#charts article')[3].getAttribute('aria-label')"),
            "train/cost");
}

TEST_F(ReportPageTest, HoverShowsTheValueUnderTheMouseInAllCharts) {
  open();
  const auto [x, y] = place(0.5, 0.5);
  browser_->mouse("mouseMoved", x, y);
  EXPECT_THAT(text_of("#tip"), testing::ContainsRegex("step [0-9]+, .*[0-9]\\.[0-9]+"));
  EXPECT_EQ(evaluate("document.querySelectorAll('.cursor:not([hidden])').length"), 2);
  browser_->mouse("mouseMoved", 2, 2);
  EXPECT_EQ(evaluate("document.querySelector('#tip').hidden"), true);
}

TEST_F(ReportPageTest, DraggingZoomsAndDoubleClickResets) {
  open();
  drag(0.4, 0.6);
  const json zoom = evaluate("state.view.zoom");
  ASSERT_TRUE(zoom.is_array());
  EXPECT_NEAR(zoom[1].get<double>() - zoom[0].get<double>(), 40, 15);
  EXPECT_EQ(evaluate("[...state.charts.values()].every(e => e.chart.x[0] === state.view.zoom[0])"),
            true);
  browser_->open("file://" + path_.string());
  EXPECT_EQ(evaluate("state.view.zoom"), zoom) << "a reload keeps it";
  const auto [x, y] = place(0.5, 0.5);
  for (const int clicks : {1, 2}) {
    browser_->mouse("mousePressed", x, y, clicks);
    browser_->mouse("mouseReleased", x, y, clicks);
  }
  EXPECT_TRUE(evaluate("state.view.zoom").is_null());
}

TEST_F(ReportPageTest, TheKeyboardReachesAndReadsEveryChart) {
  open();
  for (int i = 0; i < 40 && evaluate("document.activeElement.className") != "plot"; ++i) {
    browser_->press("Tab");
  }
  ASSERT_EQ(evaluate("document.activeElement.className"), "plot");
  EXPECT_THAT(evaluate("document.activeElement.getAttribute('aria-label')").get<std::string>(),
              HasSubstr("cost. latest"));
  browser_->press("ArrowRight");
  browser_->press("ArrowRight");
  EXPECT_THAT(text_of("#spoken"), HasSubstr("step 2,"));
  browser_->press("End");
  EXPECT_THAT(text_of("#spoken"), HasSubstr("step 200,"));
  browser_->press("+");
  EXPECT_THAT(text_of("#spoken"), testing::StartsWith("Showing step"));
  const json zoom = evaluate("state.view.zoom");
  ASSERT_TRUE(zoom.is_array());
  browser_->press("ArrowLeft", /*modifiers=*/8);
  EXPECT_LT(evaluate("state.view.zoom[0]"), zoom[0]);
  browser_->press("Escape");
  EXPECT_TRUE(evaluate("state.view.zoom").is_null());
}

TEST_F(ReportPageTest, ScaleAxisSmoothingAndSearchChangeTheCharts) {
  open();
  const auto drawn = [&] { return evaluate("document.querySelector('.plot canvas').toDataURL()"); };
  std::vector<json> pictures = {drawn()};
  for (const char* control : {"#log", "input[value=time]"}) {
    evaluate(fmt::format("document.querySelector('{}').click()", control));
    browser_->settle();
    pictures.push_back(drawn());
  }
  evaluate(
      "document.querySelector('#smoothing').value = 0.9;"
      "document.querySelector('#smoothing').dispatchEvent(new Event('input'))");
  browser_->settle();
  pictures.push_back(drawn());
  for (size_t i = 1; i < pictures.size(); ++i) EXPECT_NE(pictures[i], pictures[i - 1]) << i;
  evaluate(
      "document.querySelector('#find').value = 'ERR';"
      "document.querySelector('#find').dispatchEvent(new Event('input'))");
  EXPECT_EQ(evaluate("[...document.querySelectorAll('#charts .card')].map(c => c.hidden)"),
            json::array({true, false}));
}

TEST_F(ReportPageTest, EveryChartHasItsNumbersAsATable) {
  open();
  evaluate("document.querySelectorAll('.card-foot details').forEach(d => d.open = true)");
  browser_->settle();
  EXPECT_EQ(evaluate("document.querySelectorAll('#charts table')[0].rows.length"), 201);
  EXPECT_EQ(evaluate("document.querySelectorAll('#histograms table')[0].rows.length"), 5);
  EXPECT_EQ(evaluate("document.querySelectorAll('#charts tbody')[1].rows[99].textContent")
                .get<std::string>()
                .ends_with("nan"),
            true);
}

TEST_F(ReportPageTest, FollowsTheColoursOfTheSystemUntilToldOtherwise) {
  open();
  const auto background = [&] {
    return evaluate("getComputedStyle(document.body).backgroundColor");
  };
  browser_->prefer_colors("light");
  const json light = background();
  browser_->prefer_colors("dark");
  const json dark = background();
  EXPECT_NE(light, dark);
  evaluate("document.querySelector('#theme').click()");
  EXPECT_EQ(background(), light);
}

TEST_F(ReportPageTest, FitsAPhone) {
  browser_->resize(390, 844, /*is_phone=*/true);
  open();
  EXPECT_EQ(evaluate("document.documentElement.scrollWidth"), 390);
  EXPECT_EQ(evaluate("Math.max(...[...document.querySelectorAll('.card')]"
                     ".map(c => c.getBoundingClientRect().right)) <= 390"),
            true);
}

// What a screen reader would have nothing to say about.
TEST_F(ReportPageTest, EverythingThatCanBeUsedHasAName) {
  open();
  browser_->call("Accessibility.enable");
  const json tree = browser_->call("Accessibility.getFullAXTree")["nodes"];
  int controls = 0;
  for (const json& node : tree) {
    if (node.value("ignored", false) || !node.contains("role")) continue;
    const std::string role = node["role"].value("value", "");
    // Not "group": what opens and closes is one, and has its name inside.
    const bool is_named_role = role == "button" || role == "checkbox" || role == "radio" ||
                               role == "slider" || role == "searchbox" || role == "image" ||
                               role == "link" || role == "region" || role == "article" ||
                               role == "navigation" || role == "DisclosureTriangle";
    if (!is_named_role) continue;
    ++controls;
    const std::string name = node.contains("name") ? node["name"].value("value", "") : "";
    EXPECT_FALSE(name.empty()) << node;
  }
  EXPECT_GT(controls, 20);
  EXPECT_EQ(evaluate("document.documentElement.lang"), "en");
  EXPECT_EQ(evaluate("document.querySelectorAll('h1').length"), 1);
}

TEST_F(ReportPageTest, TwoHundredScalarsOfTenThousandPointsAreDrawnAtOnce) {
  {
    Report report({.path = path_});
    fs::create_directories(path_.parent_path());
    LoopState loop{.steps_per_epoch = 10'000, .max_epoch = 1};
    report.before_train(loop);
    for (loop.global_step = 1; loop.global_step <= 10'000; ++loop.global_step) {
      for (int i = 0; i < 200; ++i) {
        report.process_scalar(fmt::format("group{}/scalar{}", i % 8, i),
                              std::sin(0.001 * (i + 1) * static_cast<double>(loop.global_step)) +
                                  0.1 * std::sin(1.7 * static_cast<double>(loop.global_step)),
                              loop);
      }
    }
    report.after_train(loop);
  }
  EXPECT_LT(fs::file_size(path_), 2'000'000);
  browser_->open("file://" + path_.string());
  EXPECT_EQ(evaluate("state.charts.size"), 200);
  // Time of the processor: the test may not be alone on the machine.
  browser_->call("Performance.enable", {{"timeDomain", "threadTicks"}});
  const auto seconds = [&] {
    const json metrics = browser_->call("Performance.getMetrics")["metrics"];
    for (const json& metric : metrics) {
      if (metric["name"] == "TaskDuration") return metric["value"].get<double>();
    }
    return 0.0;
  };
  const double before = seconds();
  evaluate("drawNow(allCharts())");
  fmt::print("all 200 charts are drawn in {:.2f} s of the processor\n", seconds() - before);
  EXPECT_EQ(
      evaluate("[...state.charts.values()].every(e => e.chart.series[0].steps.at(-1) === 10000)"),
      true);
}

TEST_F(ReportPageTest, WatchOverlaysRunsAndKeepsTheZoomWhenTheyGrow) {
  write_report(dir_ / "runs" / "one" / "report.html", 200);
  write_report(dir_ / "runs" / "two" / "report.html", 200, /*scale=*/2);
  ChildProcess tp({TENSORPACK_TP, "watch", dir_ / "runs"});
  ASSERT_TRUE(tp.read_until("Ctrl-C")) << tp.output();
  const size_t begin = tp.output().find("http://");
  const std::string url = tp.output().substr(begin, tp.output().find(' ', begin) - begin);
  browser_->open(url);
  const auto until = [&](const std::string& condition) {
    evaluate("new Promise(r => { const ask = () => (" + condition +
             ") ? r(0) : setTimeout(ask, 50); ask(); })");
  };
  until("state.runs.length === 2 && state.runs.every(run => run.data)");
  browser_->settle();
  EXPECT_EQ(text_of("h1"), "2 runs");
  EXPECT_EQ(evaluate("[...state.charts.values()][0].chart.series.length"), 2);
  EXPECT_EQ(evaluate("document.querySelector('#runs thead').textContent"), "RunProgressscale");
  EXPECT_EQ(evaluate("document.querySelector('#runs tbody').rows[1].cells[2].textContent"), "2");
  drag(0.4, 0.6);
  const json zoom = evaluate("state.view.zoom");
  ASSERT_TRUE(zoom.is_array());
  write_report(dir_ / "runs" / "two" / "report.html", 300, /*scale=*/2);
  write_report(dir_ / "runs" / "three" / "report.html", 100, /*scale=*/3);
  until("state.runs.length === 3 && state.runs[1].data.progress.step === 300");
  EXPECT_EQ(evaluate("state.view.zoom"), zoom);
  evaluate("document.querySelector('#runs input').click()");
  browser_->settle();
  EXPECT_EQ(evaluate("[...state.charts.values()][0].chart.series.length"), 2);
}

}  // namespace
}  // namespace tensorpack
