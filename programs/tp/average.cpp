// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/average.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>

#include "programs/tp/command.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

struct AverageFlags {
  std::vector<std::string> files;
  std::string output;
};

void check_same(const std::string& file, const NamedTensors& sum, const NamedTensors& weights,
                const std::string& first) {
  for (const auto& [name, tensor] : sum) {
    const auto found = weights.find(name);
    TP_CHECK(found != weights.end() && found->second.sizes() == tensor.sizes(), "tp average",
             "'{}' in '{}' is not in '{}', or has another shape there. Average files of one model.",
             name, first, file);
  }
  TP_CHECK(weights.size() == sum.size(), "tp average",
           "'{}' has {} and '{}' has {}. Average files of one model.", first,
           counted(std::ssize(sum), "tensor"), file, weights.size());
}

// The mean of what is of a floating type, in double precision; of anything else, the last value.
int average(const AverageFlags& flags) {
  TP_CHECK(flags.files.size() >= 2, "tp average",
           "'{}' alone has nothing to be averaged with. Name several files, such as "
           "train_log/mine/model-*.safetensors.",
           flags.files[0]);
  check_output("tp average", flags.output);
  NamedTensors last;
  NamedTensors sum;
  for (const std::string& file : flags.files) {
    last = read_weights(file);
    if (!sum.empty()) check_same(file, sum, last, flags.files[0]);
    for (const auto& [name, tensor] : last) {
      const at::Tensor value = tensor.to(at::kDouble);
      if (sum.contains(name)) {
        sum[name] += value;
      } else {
        sum.emplace(name, value.clone());
      }
    }
  }
  NamedTensors mean;
  for (const auto& [name, tensor] : last) {
    const auto count = static_cast<double>(flags.files.size());
    mean[name] = tensor.is_floating_point() ? (sum[name] / count).to(tensor.scalar_type()) : tensor;
  }
  write_weights(flags.output, mean);
  fmt::print("The mean of {} files is in '{}'.\n", flags.files.size(), flags.output);
  return 0;
}

}  // namespace

void add_average(CLI::App& app, int& status) {
  const auto flags = std::make_shared<AverageFlags>();
  CLI::App* command = app.add_subcommand("average", "Average the weights of several checkpoints.");
  command->add_option("files", flags->files, "Checkpoints, or .safetensors or .npz files")
      ->required();
  command->add_option("-o,--output", flags->output, "The .safetensors or .npz file to write")
      ->required();
  command->footer(
      "Example:\n  tp average train_log/mine/model-*.safetensors -o averaged.safetensors");
  command->callback(reporting_errors(status, [flags] { return average(*flags); }));
}

}  // namespace tensorpack
