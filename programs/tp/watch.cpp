// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/watch.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "programs/tp/http_server.h"
#include "tensorpack/monitors/report/page.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFileName = "report.html";
// Far more than a report has: what is larger is none.
constexpr uintmax_t kMaxReport = 64 << 20;

bool has_report(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / kFileName, ignored);
}

// The report is replaced as a whole, so that its time and size tell one from the next.
json version_of(const fs::path& file) {
  std::error_code error;
  const auto time = fs::last_write_time(file, error);
  if (error) return nullptr;
  const uintmax_t size = fs::file_size(file, error);
  if (error || size > kMaxReport) return nullptr;
  return fmt::format("{}-{}", time.time_since_epoch().count(), size);
}

std::optional<std::string> read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string text(std::istreambuf_iterator<char>(file), {});
  return file.bad() ? std::nullopt : std::optional(std::move(text));
}

std::optional<size_t> to_index(std::string_view text) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(index) : std::nullopt;
}

// Every path there is; none of them names a file.
HttpResponse answer(WatchedRuns& runs, const std::string& path) {
  constexpr std::string_view kRun = "/runs/";
  if (path == "/") return {.type = "text/html; charset=utf-8", .body = std::string(report::page())};
  if (path == "/runs") return {.type = "application/json", .body = runs.list()};
  if (path.starts_with(kRun)) {
    const auto index = to_index(std::string_view(path).substr(kRun.size()));
    auto data = index ? runs.data(*index) : std::nullopt;
    if (data) return {.type = "application/json", .body = std::move(*data)};
  }
  return {.status = 404, .body = "There is no such page.\n"};
}

}  // namespace

WatchedRuns::WatchedRuns(std::vector<fs::path> directories) : directories_(std::move(directories)) {
  for (fs::path& directory : directories_) {
    TP_CHECK(fs::is_directory(directory), "tp watch",
             "'{}' is no directory. Name the log directory of a training, or one that holds some.",
             directory.string());
    directory = directory.lexically_normal();
    if (!directory.has_filename()) directory = directory.parent_path();
  }
  find_new();
}

void WatchedRuns::find_new() {
  for (const fs::path& directory : directories_) {
    std::error_code ignored;
    std::vector<fs::path> inside;
    for (const auto& entry : fs::directory_iterator(directory, ignored)) {
      if (has_report(entry.path())) inside.push_back(entry.path());
    }
    std::sort(inside.begin(), inside.end());
    for (const fs::path& run : inside) add(run);
    // A directory without any report is waited for.
    if (inside.empty() || has_report(directory)) add(directory);
  }
}

void WatchedRuns::add(const fs::path& directory) {
  if (std::find(runs_.begin(), runs_.end(), directory) == runs_.end()) runs_.push_back(directory);
}

// The last part of the path where that tells it from the others.
std::string WatchedRuns::name_of(const fs::path& run) const {
  const fs::path last = fs::absolute(run).lexically_normal().filename();
  const auto same = std::count_if(runs_.begin(), runs_.end(), [&](const fs::path& other) {
    return fs::absolute(other).lexically_normal().filename() == last;
  });
  return same > 1 ? run.string() : last.string();
}

std::string WatchedRuns::list() {
  find_new();
  json all = json::array();
  for (const fs::path& run : runs_) {
    all.push_back({{"name", name_of(run)}, {"version", version_of(run / kFileName)}});
  }
  return all.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<std::string> WatchedRuns::data(size_t index) const {
  if (index >= runs_.size() || version_of(runs_[index] / kFileName).is_null()) return std::nullopt;
  const auto page = read_whole(runs_[index] / kFileName);
  const std::string_view data = page ? report::data_in_page(*page) : std::string_view();
  return data.empty() ? std::nullopt : std::optional(std::string(data));
}

void watch(const WatchOptions& options) {
  WatchedRuns runs(options.directories);
  HttpServer server(options.address, options.port);
  fmt::print("Reports are shown at http://{}:{}/ until you press Ctrl-C.\n", options.address,
             server.port());
  std::fflush(stdout);
  server.serve([&](const std::string& path) { return answer(runs, path); });
}

void add_watch(CLI::App& app, int& status) {
  const auto options = std::make_shared<WatchOptions>();
  CLI::App* command = app.add_subcommand(
      "watch", "Show the reports of trainings in a browser while they run: tp watch train_log/*");
  command
      ->add_option("directories", options->directories,
                   "Log directories, or directories that hold some")
      ->required();
  command->add_option("--port", options->port, "Where to listen; any free port if left out")
      ->check(CLI::Range(0, 65535));
  command->add_option("--address", options->address,
                      "127.0.0.1 if left out: nobody else can read the reports. 0.0.0.0 shows them "
                      "to everyone who can reach this machine");
  command->footer("Example:\n  tp watch train_log/* --port 8080");
  command->callback([options, &status] {
    try {
      watch(*options);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      status = 2;
    }
  });
}

}  // namespace tensorpack
