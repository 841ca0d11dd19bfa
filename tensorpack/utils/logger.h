// SPDX-License-Identifier: Apache-2.0
// One logger for the process, and the directory where a run leaves its files.
//
//   logging::info("Epoch {} took {}.", epoch, humanize_time(seconds));
//
// prints `[0314 15:09:26 @train.cpp:27] Epoch 3 took 12 seconds.` on the standard output and, after
// set_logger_dir(), into log.log. Any thread may log at any time.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tensorpack {

namespace logging {

/// What a line is about, in rising order.
enum class Level { kDebug, kInfo, kWarning, kError, kOff };

/// A place in the source code.
struct Location {
  const char* file = "";
  int line = 0;

  /// Where it is called; as the default of an argument, where that function is called.
  static constexpr Location current(const char* file = __builtin_FILE(),
                                    int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// A format string, checked by the compiler, that knows where it was written.
template <typename... Args>
struct Format {
  template <typename Text>
  consteval Format(const Text& text, const char* file = __builtin_FILE(),  // NOLINT: implicit
                   int line = __builtin_LINE())
      : text(text), where{file, line} {}

  fmt::format_string<Args...> text;
  Location where;
};

/// Lines below `level` are dropped, before they are formatted. The default is kInfo.
void set_level(Level level);

namespace detail {
bool enabled(Level level);
void write(Level level, Location where, fmt::string_view text, fmt::format_args args);
void write_once(Level level, Location where, fmt::string_view text, fmt::format_args args);
void open_file(const std::filesystem::path& path);
void close_file();
}  // namespace detail

/// Logs at a level and place found elsewhere; for code that logs on behalf of its caller.
template <typename... Args>
void write(Level level, Location where, fmt::format_string<Args...> text, Args&&... args) {
  if (detail::enabled(level)) detail::write(level, where, text, fmt::make_format_args(args...));
}

/// For the developer; dropped unless set_level(Level::kDebug).
template <typename... Args>
void debug(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  write<Args...>(Level::kDebug, format.where, format.text, std::forward<Args>(args)...);
}

/// For the user, who need not act.
template <typename... Args>
void info(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  write<Args...>(Level::kInfo, format.where, format.text, std::forward<Args>(args)...);
}

/// The same text is logged only once in the process.
template <typename... Args>
void info_once(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  if (!detail::enabled(Level::kInfo)) return;
  detail::write_once(Level::kInfo, format.where, format.text, fmt::make_format_args(args...));
}

/// Something is probably not as the user thinks.
template <typename... Args>
void warning(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  write<Args...>(Level::kWarning, format.where, format.text, std::forward<Args>(args)...);
}

/// A warning of which the same text is logged only once in the process.
template <typename... Args>
void warning_once(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  if (!detail::enabled(Level::kWarning)) return;
  detail::write_once(Level::kWarning, format.where, format.text, fmt::make_format_args(args...));
}

/// Something failed. Prefer to throw; log where nobody could catch.
template <typename... Args>
void error(Format<std::type_identity_t<Args>...> format, Args&&... args) {
  write<Args...>(Level::kError, format.where, format.text, std::forward<Args>(args)...);
}

/// The last text that was logged as an error; empty before the first one.
std::string last_error();

}  // namespace logging

/// What to do when the log directory already has files in it (hidden ones do not count).
enum class LogDirAction {
  kAsk,     ///< Ask on the terminal; see set_logger_dir() for when there is none.
  kKeep,    ///< Add to it. Nothing is loaded from it.
  kDelete,  ///< Delete all of it.
  kBackup,  ///< Rename it to `<dir><MMDD-HHMMSS>` and start afresh.
  kNew,     ///< Leave it and use `<dir><MMDD-HHMMSS>` instead.
  kQuit,    ///< Throw Error.
};

/// Makes `dir` the directory of this run, logs into `log.log` there, and returns it.
///
/// The path returned differs from `dir` after kNew, and in the processes of a launcher other than
/// the first: `<dir>-rank<rank>`. A log.log found there is moved to log.log.<MMDD-HHMMSS>. kAsk
/// takes its answer from $TENSORPACK_LOGDIR_ACTION (keep, delete, backup, new or quit), else from
/// the terminal; without either it means kBackup, because a batch job must neither wait nor lose
/// anything. Throws Error when `dir` cannot be used, or is in use.
std::filesystem::path set_logger_dir(const std::filesystem::path& dir,
                                     LogDirAction action = LogDirAction::kAsk);

/// Calls set_logger_dir() with `train_log/<script>[:<name>]`; returns what that returns.
///
/// Of `script` only the name without extension counts: pass __FILE__ for the source's name, or
/// nothing for the program's.
std::filesystem::path auto_set_dir(LogDirAction action = LogDirAction::kAsk,
                                   std::string_view name = {}, std::filesystem::path script = {});

/// The directory of this run; nothing before set_logger_dir().
std::optional<std::filesystem::path> get_logger_dir();

/// Forgets the directory and closes its log.log.
void reset_logger_dir();

}  // namespace tensorpack
