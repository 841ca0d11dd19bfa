// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/show.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <regex>

#include "programs/tp/command.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/regex.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

struct ShowFlags {
  std::string path;
  std::string pattern;
  bool stats = false;
};

struct Contents {
  NamedTensors tensors;
  Metadata texts;
};

// Every tensor of a checkpoint, also those that only training needs.
Contents read(const fs::path& path) {
  if (is_weights_file(path) && path.extension() == ".safetensors") {
    SafetensorsFile file = read_safetensors(path);
    return {std::move(file.tensors), std::move(file.metadata)};
  }
  if (is_weights_file(path)) return {read_weights(path), {}};
  Checkpoint checkpoint = load_checkpoint(path);
  checkpoint.extra["global_step"] = std::to_string(checkpoint.global_step);
  checkpoint.extra["epoch_num"] = std::to_string(checkpoint.epoch_num);
  return {std::move(checkpoint.variables), std::move(checkpoint.extra)};
}

// The states of generators fill pages.
std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 70;
  if (text.size() <= kLongest) return text;
  return fmt::format("{}... ({} characters)", text.substr(0, kLongest / 2), text.size());
}

std::vector<std::string> stats_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {"", "", "", "", ""};
  const at::Tensor x = tensor.to(at::kDouble);
  const auto number = [](const at::Tensor& scalar) {
    return fmt::format("{:.4g}", scalar.item<double>());
  };
  return {number(x.mean()), number(x.std(/*unbiased=*/false)), number(x.min()), number(x.max()),
          std::to_string(x.isfinite().logical_not().sum().item<int64_t>())};
}

int show(const ShowFlags& flags) {
  const std::regex pattern = compile_regex("tp show", flags.pattern);
  const Contents contents = read(flags.path);
  std::vector<std::vector<std::string>> rows = {{"name", "type", "shape", ">size"}};
  if (flags.stats) {
    rows[0].insert(rows[0].end(), {">mean", ">std", ">min", ">max", ">not finite"});
  }
  int64_t elements = 0;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : contents.tensors) {
    if (!std::regex_search(name, pattern)) continue;
    rows.push_back({name, dtype_text(tensor), shape_text(tensor), humanize_bytes(tensor.nbytes())});
    if (flags.stats) {
      for (std::string& cell : stats_of(tensor)) rows.back().push_back(std::move(cell));
    }
    elements += tensor.numel();
    bytes += tensor.nbytes();
  }
  TP_CHECK(rows.size() > 1 || contents.tensors.empty(), "tp show",
           "no tensor in '{}' has a name that matches '{}'. Without a pattern all are shown.",
           flags.path, flags.pattern);
  for (const auto& [key, text] : contents.texts) fmt::print("{}: {}\n", key, shortened(text));
  if (!contents.texts.empty()) fmt::print("\n");
  print_table(rows);
  fmt::print("{}, {}, {}\n", counted(std::ssize(rows) - 1, "tensor"), counted(elements, "element"),
             humanize_bytes(bytes));
  return 0;
}

}  // namespace

void add_show(CLI::App& app, int& status) {
  const auto flags = std::make_shared<ShowFlags>();
  CLI::App* command = app.add_subcommand("show", "Show what is in a file of tensors.");
  command
      ->add_option("file", flags->path,
                   "A checkpoint, a directory of them, or a .safetensors or .npz file")
      ->required();
  command->add_option("pattern", flags->pattern,
                      "Only tensors whose name contains a match of this regular expression");
  command->add_flag("--stats", flags->stats, "Also mean, deviation, range and what is not finite");
  command->footer("Example:\n  tp show train_log/fashion_mnist 'conv.*/W$' --stats");
  command->callback(reporting_errors(status, [flags] { return show(*flags); }));
}

}  // namespace tensorpack
