// SPDX-License-Identifier: Apache-2.0
// A progress bar, drawn in place on a terminal, a line now and then everywhere else.
//
//   ProgressMeter meter({.total = 100});
//   for (...) meter.advance();
//
//    42%|########            | 42/100 [00:10<00:13, 4.20it/s, cost=0.3]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpack {

class Console;

struct ProgressMeterOptions {
  std::int64_t total = 0;  ///< 0 when it is unknown: then only the count and the rate are shown.
  std::string description = {};
  std::string unit = "it";

  /// Seconds between two drawings. By default $TENSORPACK_PROGRESS_REFRESH, else 0.5 on a terminal
  /// and otherwise 15 in a SLURM job on one machine, 60 on several or under mpirun, 180 elsewhere.
  std::optional<double> refresh_seconds = {};

  Console* console = nullptr;  ///< Where to draw; by default where the logger writes.
};

/// Shows how far a loop is. For one thread; others may log meanwhile.
class ProgressMeter {
 public:
  explicit ProgressMeter(ProgressMeterOptions options = {});
  ~ProgressMeter();
  ProgressMeter(const ProgressMeter&) = delete;
  ProgressMeter& operator=(const ProgressMeter&) = delete;

  /// Counts `n` more; a few nanoseconds unless it is time to draw.
  void advance(std::int64_t n = 1) {
    done_ += n;
    if (is_due()) draw();
  }

  /// Sets the text after the rate, shown from the next drawing on.
  void set_postfix(std::string text) { postfix_ = std::move(text); }

  /// Draws the final state and ends the line. The second call does nothing.
  void close();

  std::int64_t done() const { return done_; }

  /// Whether the next advance() draws: what is worth showing is needed now, and only now.
  bool is_due() const { return now() >= next_drawing_; }

 private:
  static double now();
  void draw();
  std::string render() const;

  ProgressMeterOptions options_;
  Console& console_;
  double refresh_;
  double start_;
  double next_drawing_;
  std::int64_t done_ = 0;
  std::string postfix_;
  bool closed_ = false;
};

namespace detail {

/// What a progress bar shows.
struct ProgressState {
  std::int64_t done = 0;
  std::int64_t total = 0;
  double seconds = 0;
  std::string_view description = {};
  std::string_view unit = "it";
  std::string_view postfix = {};
};

/// The text of a bar: at most `width` columns, or as many as it takes when there is no width.
std::string render_progress(const ProgressState& state, std::optional<int> width);

/// The default of ProgressMeterOptions::refresh_seconds.
double progress_refresh_seconds(bool is_terminal);

}  // namespace detail

}  // namespace tensorpack
