// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "programs/tp/model_main.h"

namespace tensorpack {

struct Outcome {
  int status = 0;
  std::string output = {};
};

/// `tp <words>`, run in this process.
inline Outcome run_tp(std::vector<std::string> words) {
  words.insert(words.begin(), "tp");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = model_main(static_cast<int>(words.size()), argv.data());
  const std::string output = testing::internal::GetCapturedStdout();
  return {status, output + testing::internal::GetCapturedStderr()};
}

}  // namespace tensorpack
