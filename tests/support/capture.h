// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace tensorpack {

/// Everything `f` writes to the standard output, log lines included.
template <typename F>
std::string stdout_of(F&& f) {
  testing::internal::CaptureStdout();
  try {
    f();
  } catch (...) {
    testing::internal::GetCapturedStdout();  // else the next test could not capture
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

}  // namespace tensorpack
