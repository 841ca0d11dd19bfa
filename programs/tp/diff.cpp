// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/diff.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>
#include <set>

#include "programs/tp/command.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

struct DiffFlags {
  std::string first;
  std::string second;
  double tolerance = 0;
};

// What is different, or nothing.
std::string difference(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) {
    return fmt::format("{} {} and {} {}", dtype_text(a), shape_text(a), dtype_text(b),
                       shape_text(b));
  }
  const at::Tensor x = a.to(at::kDouble);
  const at::Tensor y = b.to(at::kDouble);
  const at::Tensor same = (x == y) | (x.isnan() & y.isnan());
  const at::Tensor distance = (x - y).abs().masked_fill(same, 0);
  const at::Tensor differs = (distance > tolerance) | distance.isnan();
  const auto count = differs.sum().item<int64_t>();
  if (count == 0) return "";
  return fmt::format("it differs in {} of {}, by up to {:.4g}", count,
                     counted(a.numel(), "element"),
                     distance.nan_to_num(INFINITY).max().item<double>());
}

int compare(const DiffFlags& flags) {
  TP_CHECK(flags.tolerance >= 0, "tp diff",
           "--tolerance is {}. Give a number that is not negative.", flags.tolerance);
  const NamedTensors first = read_weights(flags.first);
  const NamedTensors second = read_weights(flags.second);
  int64_t same = 0;
  std::vector<std::string> lines;
  for (const auto& [name, tensor] : first) {
    const auto found = second.find(name);
    if (found == second.end()) {
      lines.push_back(fmt::format("< {}: only in '{}'", name, flags.first));
      continue;
    }
    const std::string text = difference(tensor, found->second, flags.tolerance);
    if (text.empty()) {
      ++same;
    } else {
      lines.push_back(fmt::format("! {}: {}", name, text));
    }
  }
  for (const auto& [name, tensor] : second) {
    if (!first.contains(name))
      lines.push_back(fmt::format("> {}: only in '{}'", name, flags.second));
  }
  for (const std::string& line : lines) fmt::print("{}\n", line);
  fmt::print("{} the same, {} not\n", counted(same, "tensor"), lines.size());
  return lines.empty() ? 0 : 1;
}

}  // namespace

void add_diff(CLI::App& app, int& status) {
  const auto flags = std::make_shared<DiffFlags>();
  CLI::App* command = app.add_subcommand(
      "diff", "Compare the weights of two files. The exit status is 1 if they differ.");
  command->add_option("first", flags->first, "A checkpoint, or a .safetensors or .npz file")
      ->required();
  command->add_option("second", flags->second, "Another one")->required();
  command->add_option("--tolerance", flags->tolerance,
                      "How much elements may differ and still be the same");
  command->footer(
      "Example:\n  tp diff model-100.safetensors model-200.safetensors --tolerance 1e-6");
  command->callback(reporting_errors(status, [flags] { return compare(*flags); }));
}

}  // namespace tensorpack
