// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <iterator>
#include <thread>

namespace tensorpack::test {

/// Counts the threads and the open files of this process, to tell what was left behind since.
class Leftovers {
 public:
  /// A thread that was joined may still be listed for a moment.
  void expect_none() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (count("task") > threads_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_LE(count("task"), threads_) << "threads";
    EXPECT_LE(count("fd"), files_) << "files";
  }

 private:
  static std::ptrdiff_t count(const char* what) {
    namespace fs = std::filesystem;
    const fs::directory_iterator entries(fs::path("/proc/self") / what);
    return std::distance(fs::begin(entries), fs::end(entries));
  }

  std::ptrdiff_t threads_ = count("task");
  std::ptrdiff_t files_ = count("fd");
};

}  // namespace tensorpack::test
