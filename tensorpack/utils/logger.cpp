// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/logger.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "tensorpack/utils/console.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/log_once.h"

namespace tensorpack::logging {

namespace {

struct Mark {
  const char* text;
  const char* color;
};

Mark mark_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::debug:
      return {"DBG ", "\x1b[33m"};
    case spdlog::level::warn:
      return {"WRN ", "\x1b[31m"};
    case spdlog::level::err:
      return {"ERR ", "\x1b[1;31m"};
    default:
      return {"", ""};
  }
}

// `[MMDD HH:MM:SS @file:line] WRN text`, the bracket green and the mark in its colour.
class LineFormatter final : public spdlog::formatter {
 public:
  explicit LineFormatter(bool colored) : colored_(colored) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto time = fmt::localtime(std::chrono::system_clock::to_time_t(message.time));
    const Mark mark = mark_of(message.level);
    const char* reset = colored_ ? "\x1b[0m" : "";
    const bool colored_mark = colored_ && *mark.text != '\0';
    fmt::format_to(fmt::appender(out), "{}[{:%m%d %H:%M:%S} @{}:{}]{} {}{}{}{}\n",
                   colored_ ? "\x1b[32m" : "", time, basename(message.source.filename),
                   message.source.line, reset, colored_mark ? mark.color : "", mark.text,
                   colored_mark ? reset : "",
                   fmt::string_view(message.payload.data(), message.payload.size()));
  }

  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<LineFormatter>(colored_);
  }

 private:
  static std::string_view basename(std::string_view file) {
    return file.substr(file.find_last_of('/') + 1);
  }

  bool colored_;
};

class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  ConsoleSink()
      : base_sink(std::make_unique<LineFormatter>(Console::standard().is_terminal() &&
                                                  !env("NO_COLOR"))) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    Console::standard().write({line.data(), line.size()});
  }
  void flush_() override {}
};

struct Logger {
  // A sink of sinks: files come and go under its lock while other threads log.
  std::shared_ptr<spdlog::sinks::dist_sink_mt> sinks =
      std::make_shared<spdlog::sinks::dist_sink_mt>();
  spdlog::logger spd{"tensorpack", sinks};
  std::atomic<Level> level = Level::kInfo;
  std::mutex mutex;  // guards what follows
  spdlog::sink_ptr file;
  std::unordered_set<std::string> said;
  std::string last_error;

  Logger() {
    sinks->add_sink(std::make_shared<ConsoleSink>());
    spd.set_level(spdlog::level::trace);
    // Lines are few, and `tail -f log.log` should show them.
    spd.flush_on(spdlog::level::trace);
  }
};

Logger& logger() {
  // Never destroyed: destructors of other static objects may still log.
  static auto* instance = new Logger;
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    default:
      return spdlog::level::err;
  }
}

void write_text(Level level, Location where, std::string_view text) {
  if (level == Level::kError) {
    const std::lock_guard lock(logger().mutex);
    logger().last_error = text;
  }
  logger().spd.log(spdlog::source_loc{where.file, where.line, ""}, to_spdlog(level), text);
}

}  // namespace

void set_level(Level level) { logger().level = level; }

namespace detail {

bool enabled(Level level) { return level >= logger().level.load(std::memory_order_relaxed); }

void write(Level level, Location where, fmt::string_view text, fmt::format_args args) {
  fmt::memory_buffer buffer;
  fmt::vformat_to(fmt::appender(buffer), text, args);
  write_text(level, where, {buffer.data(), buffer.size()});
}

void write_once(Level level, Location where, fmt::string_view text, fmt::format_args args) {
  const std::string line = fmt::vformat(text, args);
  {
    const std::lock_guard lock(logger().mutex);
    if (!logger().said.insert(line).second) return;
  }
  write_text(level, where, line);
}

void open_file(const std::filesystem::path& path) {
  close_file();
  spdlog::sink_ptr file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
  file->set_formatter(std::make_unique<LineFormatter>(/*colored=*/false));
  const std::lock_guard lock(logger().mutex);
  logger().file = file;
  logger().sinks->add_sink(std::move(file));
}

void close_file() {
  const std::lock_guard lock(logger().mutex);
  if (!logger().file) return;
  logger().sinks->remove_sink(logger().file);
  logger().file = nullptr;
}

}  // namespace detail

std::string last_error() {
  const std::lock_guard lock(logger().mutex);
  return logger().last_error;
}

void forget_logged_once() {
  const std::lock_guard lock(logger().mutex);
  logger().said.clear();
}

}  // namespace tensorpack::logging
