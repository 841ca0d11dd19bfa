// SPDX-License-Identifier: Apache-2.0
// The stream that the logger and the progress bar share.
//
// On a terminal the last line may be alive: a progress bar redrawn in place. A whole line that is
// written meanwhile goes above it, so neither tears the other.
#pragma once

#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace tensorpack {

/// Whole lines and at most one live line, on one stream. All members may be called by any thread.
class Console {
 public:
  /// Writes to `out`, which must outlive the console.
  Console(std::FILE* out, bool is_terminal) : out_(out), is_terminal_(is_terminal) {}
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// The console of the process: its standard output.
  static Console& standard();

  bool is_terminal() const { return is_terminal_; }

  /// Columns of the terminal; 80 when unknown.
  int width() const;

  /// Writes text that ends its own lines, above the live line if there is one.
  void write(std::string_view lines);

  /// Draws the live line, in place of the one before. Only for terminals.
  void set_live_line(std::string line);

  /// Leaves the live line where it is: the next output starts below it.
  void end_live_line();

 private:
  void put(std::string_view text) { std::fwrite(text.data(), 1, text.size(), out_); }

  std::FILE* out_;
  bool is_terminal_;
  std::mutex mutex_;
  std::string live_line_;
};

}  // namespace tensorpack
