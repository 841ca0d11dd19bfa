// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/export.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tensorpack/export/dump_program.h"
#include "tensorpack/export/exported_program.h"
#include "tensorpack/export/onnx.h"
#include "tensorpack/export/program_file.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

struct ExportFlags {
  std::string file;
  bool show = false;
  std::string onnx;
  bool fold_batch_norm = false;
};

void run(const ExportFlags& flags) {
  TP_CHECK(flags.onnx != flags.file, "tp export",
           "'{}' would be replaced by what is made of it. Choose another name for --onnx.",
           flags.file);
  ExportedProgram program = read_program(flags.file);
  if (flags.show || flags.onnx.empty()) fmt::print("{}", dump_text(program));
  if (flags.onnx.empty()) return;
  write_onnx(flags.onnx, std::move(program), {.fold_batch_norm = flags.fold_batch_norm});
  fmt::print("'{}' has the model as ONNX, opset {}.\n", flags.onnx, kOnnxOpset);
}

}  // namespace

void add_export(CLI::App& app, int& status) {
  auto flags = std::make_shared<ExportFlags>();
  CLI::App* command = app.add_subcommand("export", "Show an exported model, or write it as ONNX.");
  command->footer(
      "Files come from export_model(), in the program that has the model's source.\n"
      "Example:\n"
      "  tp export model.tpx --show\n"
      "  tp export model.tpx --onnx model.onnx --fold-batch-norm");
  command->add_option("file", flags->file, "What export_model() wrote")->required();
  command->add_flag("--show", flags->show,
                    "Print inputs, outputs, tensors and operators, as without any option");
  command->add_option("--onnx", flags->onnx, "Write an ONNX model to this file");
  command->add_flag("--fold-batch-norm", flags->fold_batch_norm,
                    "Multiply batch norms into the convolutions they follow");
  command->callback([flags, &status] {
    try {
      run(*flags);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      status = 2;
    }
  });
}

}  // namespace tensorpack
