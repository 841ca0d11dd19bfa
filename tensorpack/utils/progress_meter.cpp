// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/progress_meter.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "tensorpack/utils/console.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

namespace {

constexpr int kBarWithoutWidth = 20;
constexpr int kNarrowestBar = 3;

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds);
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{:02}:{:02}", minutes, whole % 60);
}

std::string rate_text(double rate) {
  if (rate <= 0) return "?";
  if (rate >= 100) return fmt::format("{:.0f}", rate);
  return rate >= 1 ? fmt::format("{:.2f}", rate) : fmt::format("{:.3g}", rate);
}

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

// One column per character of UTF-8: right for what people put into descriptions.
int columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string cut(std::string text, int width) {
  std::size_t end = 0;
  for (int left = std::max(width, 0); end < text.size(); ++end) {
    if (starts_character(text[end]) && left-- == 0) break;
  }
  text.resize(end);
  return text;
}

}  // namespace

ProgressMeter::ProgressMeter(ProgressMeterOptions options)
    : options_(std::move(options)),
      console_(options_.console != nullptr ? *options_.console : Console::standard()),
      refresh_(options_.refresh_seconds ? *options_.refresh_seconds
                                        : detail::progress_refresh_seconds(console_.is_terminal())),
      start_(now()),
      next_drawing_(start_ + refresh_) {
  TP_CHECK(options_.total >= 0, "ProgressMeter",
           "the total must not be negative, got {}. Pass 0 when it is unknown.", options_.total);
  if (console_.is_terminal()) draw();
}

ProgressMeter::~ProgressMeter() { close(); }

void ProgressMeter::close() {
  if (std::exchange(closed_, true)) return;
  draw();
  if (console_.is_terminal()) console_.end_live_line();
}

double ProgressMeter::now() {
  // A quarter of the price of the exact clock, and exact to some milliseconds.
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void ProgressMeter::draw() {
  next_drawing_ = now() + refresh_;
  if (console_.is_terminal()) {
    console_.set_live_line(render());
  } else {
    console_.write(render() + "\n");
  }
}

std::string ProgressMeter::render() const {
  const detail::ProgressState state{
      .done = done_,
      .total = options_.total,
      .seconds = now() - start_,
      .description = options_.description,
      .unit = options_.unit,
      .postfix = postfix_,
  };
  if (!console_.is_terminal()) return detail::render_progress(state, std::nullopt);
  // Many terminals break the line after a character in the last column.
  return detail::render_progress(state, console_.width() - 1);
}

std::string detail::render_progress(const ProgressState& state, std::optional<int> width) {
  const bool known = state.total > 0;
  const double rate = state.seconds > 0 ? static_cast<double>(state.done) / state.seconds : 0;
  const std::int64_t done = known ? std::min(state.done, state.total) : 0;

  std::string left = state.description.empty() ? "" : fmt::format("{}: ", state.description);
  std::string right = known ? fmt::format(" {}/{} [", state.done, state.total)
                            : fmt::format("{}{} [", state.done, state.unit);
  right += clock_text(state.seconds);
  if (known) {
    left += fmt::format("{:3}%", 100 * done / state.total);
    right += '<';
    right += rate > 0 ? clock_text(static_cast<double>(state.total - done) / rate) : "?";
  }
  right += fmt::format(", {}{}/s", rate_text(rate), state.unit);
  if (!state.postfix.empty()) right += fmt::format(", {}", state.postfix);
  right += "]";

  const int room = width ? *width - columns(left) - columns(right) - 2 : kBarWithoutWidth;
  std::string bar;
  if (known && room >= kNarrowestBar) {
    const auto filled = static_cast<int>(static_cast<double>(room) * static_cast<double>(done) /
                                         static_cast<double>(state.total));
    bar = fmt::format("|{}{}|", std::string(static_cast<std::size_t>(filled), '#'),
                      std::string(static_cast<std::size_t>(room - filled), ' '));
  }
  std::string line = left + bar + right;
  return width ? cut(std::move(line), *width) : line;
}

double detail::progress_refresh_seconds(bool is_terminal) {
  if (const auto seconds = env_double("TENSORPACK_PROGRESS_REFRESH")) return *seconds;
  if (is_terminal) return 0.5;
  if (env("SLURM_JOB_ID")) {
    return env_int("SLURM_JOB_NUM_NODES").value_or(1) > 1 ? 60 : 15;
  }
  return env("OMPI_COMM_WORLD_SIZE") ? 60 : 180;
}

}  // namespace tensorpack
