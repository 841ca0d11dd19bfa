// SPDX-License-Identifier: Apache-2.0
// What the commands of `tp-model` have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// What a command does when it is called, with an error on the standard error and the status 2
/// when it fails.
std::function<void()> reporting_errors(int& status, std::function<int()> run);

/// Weights must not take the place of a checkpoint, which holds more: throws an Error where `path`
/// is one. Any other file may be replaced.
void check_output(const char* where, const std::filesystem::path& path);

/// "F32", "[64, 3, 7, 7]".
std::string dtype_text(const at::Tensor& tensor);
std::string shape_text(const at::Tensor& tensor);

/// Prints rows with columns that stand below each other; numbers, which are right-aligned, are the
/// columns that begin with '>' in the first row.
void print_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace tensorpack
