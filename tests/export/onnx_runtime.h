// SPDX-License-Identifier: Apache-2.0
// Another runtime to hold ONNX files to: onnxruntime, from npm.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace tensorpack {

/// Where tools/setup --test has put it; empty if it has not.
inline std::filesystem::path onnx_runtime() {
  const std::filesystem::path modules =
      std::filesystem::path(TENSORPACK_SOURCE_DIR) / "build/npm/node_modules";
  return exists(modules / "onnxruntime-node") ? modules : std::filesystem::path();
}

/// Runs models on batches: a model, a file of inputs and one for outputs each.
inline void run_onnx(const std::vector<std::string>& files) {
  std::vector<std::string> command = {
      "/usr/bin/env", "NODE_PATH=" + onnx_runtime().string(), "node",
      std::string(TENSORPACK_SOURCE_DIR) + "/tests/export/run_onnx.js"};
  command.insert(command.end(), files.begin(), files.end());
  ChildProcess child(command);
  ASSERT_EQ(child.wait(), 0) << child.output();
}

}  // namespace tensorpack

#define TP_SKIP_WITHOUT_ONNX_RUNTIME()      \
  if (::tensorpack::onnx_runtime().empty()) \
  GTEST_SKIP() << "onnxruntime-node is not there; tools/setup --test installs it where npm is"
