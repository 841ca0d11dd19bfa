// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/convert.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <memory>

#include "programs/tp/command.h"
#include "tensorpack/checkpoint/name_map.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

struct ConvertFlags {
  std::string input;
  std::string output;
  std::string names;
  std::string like;
  bool float32 = false;
};

// To the names of the tensors in `like`, which the rules lead away from.
NamedTensors back_to(const NamedTensors& like, const NameMap& map, const NamedTensors& theirs) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : like) names.push_back(name);
  FromForeign translated = from_foreign(map, theirs, names);
  for (const std::string& name : names) {
    TP_CHECK(translated.ours.contains(name), "tp convert",
             "there is no '{}', from which '{}' would be made. Correct the rules.", map(name).name,
             name);
  }
  if (!translated.unused.empty()) {
    fmt::print("Not used: {}.\n", join(translated.unused));
  }
  return std::move(translated.ours);
}

int convert(const ConvertFlags& flags) {
  check_output("tp convert", flags.output);
  NamedTensors tensors = read_weights(flags.input);
  const NameMap map = flags.names.empty() ? NameMap() : read_name_map(flags.names);
  tensors = flags.like.empty() ? to_foreign(map, tensors)
                               : back_to(read_weights(flags.like), map, tensors);
  for (auto& [name, tensor] : tensors) {
    if (flags.float32 && tensor.is_floating_point()) tensor = tensor.to(at::kFloat);
  }
  write_weights(flags.output, tensors);
  fmt::print("Wrote {} to '{}'.\n", counted(std::ssize(tensors), "tensor"), flags.output);
  return 0;
}

}  // namespace

void add_convert(CLI::App& app, int& status) {
  const auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand(
      "convert", "Write weights in another format, or under the names of another library.");
  command->add_option("input", flags->input, "A checkpoint, or a .safetensors or .npz file")
      ->required();
  command->add_option("output", flags->output, "The .safetensors or .npz file to write")
      ->required();
  command->add_option("--names", flags->names,
                      "A file with rules for names, a line each: 'pattern -> replacement', and "
                      "behind it 'transposed' or 'part 0 of 3' if need be; 'ignore pattern'");
  command->add_option("--like", flags->like,
                      "Apply the rules backwards, to get the names that this file has");
  command->add_flag("--float32", flags->float32, "Cast to float32: NumPy has no bfloat16");
  command->footer(
      "Example:\n"
      "  tp convert train_log/mine weights.npz\n"
      "  tp convert model-100.safetensors theirs.safetensors --names rules.txt\n"
      "  tp convert theirs.safetensors ours.safetensors --names rules.txt --like "
      "model-100.safetensors");
  command->callback(reporting_errors(status, [flags] { return convert(*flags); }));
}

}  // namespace tensorpack
