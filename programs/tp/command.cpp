// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/command.h"

#include <fmt/ranges.h>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

namespace fs = std::filesystem;

std::function<void()> reporting_errors(int& status, std::function<int()> run) {
  return [&status, run = std::move(run)] {
    try {
      status = run();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", describe(error));
      status = 2;
    }
  };
}

void check_output(const char* where, const fs::path& path) {
  if (path.extension() != kCheckpointExtension || !fs::exists(path)) return;
  Metadata metadata;
  try {
    metadata = read_safetensors_header(path).metadata;
  } catch (const Error&) {
    return;  // nobody can read it
  }
  TP_CHECK(
      !is_checkpoint(metadata), where,
      "'{}' is a checkpoint: with the weights alone in its place, no training could go on from "
      "it. Choose another name, or delete it first.",
      path.string());
}

std::string dtype_text(const at::Tensor& tensor) { return c10::toString(tensor.scalar_type()); }

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows[0].size(), 0);
  std::vector<bool> is_number;
  for (const std::string& title : rows[0]) is_number.push_back(title.starts_with(">"));
  const auto cell = [&](size_t row, size_t column) {
    const std::string& text = rows[row][column];
    return row == 0 && is_number[column] ? text.substr(1) : text;
  };
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], cell(row, i).size());
  }
  for (size_t row = 0; row < rows.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      line += is_number[i] ? fmt::format("{:>{}}  ", cell(row, i), widths[i])
                           : fmt::format("{:<{}}  ", cell(row, i), widths[i]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
}

}  // namespace tensorpack
