// SPDX-License-Identifier: Apache-2.0
// `tp watch`: shows the reports of trainings while they run, one beside the other.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tensorpack {

/// The reports in some log directories. Directories that hold log directories stand for all in
/// them, those that come later too.
class WatchedRuns {
 public:
  explicit WatchedRuns(std::vector<std::filesystem::path> directories);

  /// A JSON list of {name, version}; the version changes with the report and is null without one.
  std::string list();
  /// The data of a run, by its place in the list; nothing when there is none.
  std::optional<std::string> data(size_t index) const;

 private:
  void find_new();
  void add(const std::filesystem::path& directory);
  std::string name_of(const std::filesystem::path& run) const;

  std::vector<std::filesystem::path> directories_;
  std::vector<std::filesystem::path> runs_;  // in the order in which they were found
};

struct WatchOptions {
  std::vector<std::filesystem::path> directories = {};
  std::string address = "127.0.0.1";
  int port = 0;
};

/// Serves until it is killed.
[[noreturn]] void watch(const WatchOptions& options);

/// Adds the subcommand; `status` gets the exit status.
void add_watch(CLI::App& app, int& status);

}  // namespace tensorpack
