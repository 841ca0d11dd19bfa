// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tensorpack/utils/console.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/file_lock.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/launch_environment.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSetLoggerDir = "set_logger_dir";
constexpr const char* kActionVariable = "TENSORPACK_LOGDIR_ACTION";

struct Current {
  std::mutex mutex;
  std::optional<fs::path> dir;
  std::unique_ptr<FileLock> lock;
};

Current& current() {
  static auto* instance = new Current;
  return *instance;
}

Error unusable(const fs::path& dir, std::string_view reason) {
  return make_error(kSetLoggerDir, "cannot use '{}': {}. Choose a directory that you may write to.",
                    dir.string(), reason);
}

void check(const std::error_code& code, const fs::path& dir) {
  if (code) throw unusable(dir, code.message());
}

// Two runs in one directory would lose or rename each other's files.
std::unique_ptr<FileLock> lock_directory(const fs::path& dir) {
  try {
    auto lock = std::make_unique<FileLock>(dir / ".lock");
    TP_CHECK(!lock->other_holder(), kSetLoggerDir,
             "'{}' is in use by {}. Wait until that ends, or choose another directory.",
             dir.string(), *lock->other_holder());
    return lock;
  } catch (const std::system_error& error) {
    throw unusable(dir, error.code().message());
  }
}

bool has_visible_files(const fs::path& dir) {
  std::error_code code;
  fs::directory_iterator files(dir, code);
  check(code, dir);
  return std::any_of(begin(files), end(files), [](const fs::directory_entry& entry) {
    return entry.path().filename().string().front() != '.';
  });
}

// A name for `path` and now that is not taken: two runs may start in one second.
fs::path dated(const fs::path& path, std::string_view separator = "") {
  const std::string base = fmt::format("{}{}{}", path.string(), separator, timestamp());
  fs::path candidate = base;
  for (int i = 1; fs::exists(candidate); ++i) candidate = fmt::format("{}-{}", base, i);
  return candidate;
}

std::optional<LogDirAction> parse_action(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, LogDirAction>, 5> kWords{{
      {"keep", LogDirAction::kKeep},
      {"delete", LogDirAction::kDelete},
      {"backup", LogDirAction::kBackup},
      {"new", LogDirAction::kNew},
      {"quit", LogDirAction::kQuit},
  }};
  for (const auto& [word, action] : kWords) {
    if (text == word || text == word.substr(0, 1)) return action;
  }
  return std::nullopt;
}

LogDirAction ask_on_terminal(const fs::path& dir) {
  const std::string question = fmt::format(
      "The log directory '{}' has files in it.\n"
      "k (keep), d (delete), b (backup), n (new directory), q (quit)? ",
      dir.string());
  std::string answer;
  while (true) {
    Console::standard().write(question);
    if (!std::getline(std::cin, answer)) return LogDirAction::kQuit;
    if (const auto action = parse_action(answer)) return *action;
  }
}

LogDirAction decide(const fs::path& dir) {
  if (const auto text = env(kActionVariable)) {
    const auto action = parse_action(*text);
    TP_CHECK(action, kActionVariable, "'{}' is no action. {}", *text,
             did_you_mean(*text, {"keep", "delete", "backup", "new", "quit"}));
    return *action;
  }
  if (::isatty(STDIN_FILENO) == 1) return ask_on_terminal(dir);
  logging::warning(
      "The log directory '{}' has files in it and there is no terminal to ask: it is backed up. "
      "Set {} or pass an action to choose.",
      dir.string(), kActionVariable);
  return LogDirAction::kBackup;
}

void check_may_go(const fs::path& dir) {
  const fs::path inside = fs::current_path().lexically_relative(fs::weakly_canonical(dir));
  TP_CHECK(inside.empty() || *inside.begin() == "..", kSetLoggerDir,
           "'{}' contains the working directory, so it is neither deleted nor renamed. Choose a "
           "directory below it.",
           dir.string());
}

// Of a link, the directory that it leads to: there the files are, and there the new ones will be.
fs::path real_directory(const fs::path& dir) {
  return fs::is_symlink(dir) ? fs::canonical(dir) : dir;
}

void delete_directory(const fs::path& dir) {
  check_may_go(dir);
  const auto lock = lock_directory(dir);
  std::error_code code;
  fs::remove_all(dir, code);
  check(code, dir);
  logging::info("Deleted the old '{}'.", dir.string());
}

void back_up_directory(const fs::path& dir) {
  check_may_go(dir);
  const auto lock = lock_directory(dir);
  const fs::path backup = dated(dir);
  std::error_code code;
  fs::rename(dir, backup, code);
  check(code, dir);
  logging::info("Renamed the old '{}' to '{}'.", dir.string(), backup.string());
}

fs::path settle(const fs::path& dir, LogDirAction action) {
  if (action == LogDirAction::kAsk) action = decide(dir);
  const fs::path real = real_directory(dir);
  switch (action) {
    case LogDirAction::kKeep:
      break;
    case LogDirAction::kDelete:
      delete_directory(real);
      fs::create_directories(real);
      break;
    case LogDirAction::kBackup:
      back_up_directory(real);
      fs::create_directories(real);
      break;
    case LogDirAction::kNew:
      return dated(dir);
    default:
      throw make_error(kSetLoggerDir,
                       "'{}' has files in it. Choose another directory, pass another LogDirAction, "
                       "or set {} to keep, delete, backup or new.",
                       dir.string(), kActionVariable);
  }
  return dir;
}

void open_log(const fs::path& dir) {
  const fs::path file = dir / "log.log";
  std::error_code code;
  if (fs::exists(file, code)) {
    fs::rename(file, dated(file, "."), code);
    check(code, dir);
  }
  // spdlog retries for a while and wraps the reason: try first.
  std::FILE* probe = std::fopen(file.c_str(), "a");
  if (probe == nullptr) throw unusable(dir, std::strerror(errno));
  std::fclose(probe);
  logging::detail::open_file(file);
}

}  // namespace

fs::path set_logger_dir(const fs::path& dir, LogDirAction action) {
  TP_CHECK(!dir.empty(), kSetLoggerDir, "the path is empty. Name a directory.");
  fs::path chosen = dir.lexically_normal();
  // With a trailing slash the date would go inside the directory.
  if (!chosen.has_filename()) chosen = chosen.parent_path();
  if (const int rank = detect_launch().rank; rank > 0) chosen += fmt::format("-rank{}", rank);
  reset_logger_dir();

  std::error_code code;
  if (fs::is_directory(chosen, code) && has_visible_files(chosen)) chosen = settle(chosen, action);
  fs::create_directories(chosen, code);
  check(code, chosen);
  auto lock = lock_directory(chosen);
  remove_stale_temporaries(chosen);
  open_log(chosen);
  {
    const std::lock_guard guard(current().mutex);
    current().dir = chosen;
    current().lock = std::move(lock);
  }
  logging::info("Command line: {}", join(command_line(), " "));
  return chosen;
}

fs::path auto_set_dir(LogDirAction action, std::string_view name, fs::path script) {
  if (script.empty()) {
    const std::vector<std::string> words = command_line();
    script = words.empty() ? "run" : words.front();
  }
  std::string leaf = script.stem().string();
  if (!name.empty()) leaf += fmt::format(":{}", name);
  return set_logger_dir(fs::path("train_log") / leaf, action);
}

std::optional<fs::path> get_logger_dir() {
  const std::lock_guard lock(current().mutex);
  return current().dir;
}

void reset_logger_dir() {
  logging::detail::close_file();
  const std::lock_guard lock(current().mutex);
  current().dir = std::nullopt;
  current().lock.reset();
}

}  // namespace tensorpack
