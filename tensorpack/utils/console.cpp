// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <utility>

namespace tensorpack {

namespace {
constexpr std::string_view kClearLine = "\r\x1b[K";
}

Console& Console::standard() {
  // Never destroyed: destructors of other static objects may still log.
  static auto* console = new Console(stdout, ::isatty(STDOUT_FILENO) == 1);
  return *console;
}

int Console::width() const {
  winsize size{};
  const bool known = ::ioctl(::fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

void Console::write(std::string_view lines) {
  const std::lock_guard lock(mutex_);
  if (!live_line_.empty()) put(kClearLine);
  put(lines);
  put(live_line_);
  std::fflush(out_);
}

void Console::set_live_line(std::string line) {
  const std::lock_guard lock(mutex_);
  live_line_ = std::move(line);
  put(kClearLine);
  put(live_line_);
  std::fflush(out_);
}

void Console::end_live_line() {
  const std::lock_guard lock(mutex_);
  if (live_line_.empty()) return;
  live_line_.clear();
  put("\n");
  std::fflush(out_);
}

}  // namespace tensorpack
