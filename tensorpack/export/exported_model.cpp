// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/exported_model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/export/detail/program_function.h"
#include "tensorpack/export/program_file.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/utils/device.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

std::shared_ptr<const detail::ProgramFunction> function_of(
    const std::filesystem::path& path, const ExportedProgram& program, c10::Device device,
    const std::vector<std::string>& operators) {
  try {
    return std::make_shared<const detail::ProgramFunction>(program, device, operators);
  } catch (const detail::Malformed& error) {
    throw make_error("load_exported_model",
                     "'{}' cannot be run: {}. Use the libtorch it was exported with, or export it "
                     "again. Further operators, for files that you trust, are named in "
                     "ExportedModelOptions::operators.",
                     path.string(), error.what());
  }
}

}  // namespace

ExportedModel load_exported_model(const std::filesystem::path& path, ExportedModelOptions options) {
  const c10::Device device = check_device(options.device);
  const ExportedProgram program = read_program(path);
  std::vector<TensorSpec> inputs;
  for (const ExportedInput& input : program.inputs) {
    inputs.push_back(input.spec);
    // The graph is built on a batch that the program can take.
    Shape& trial = inputs.back().trial_shape = input.spec.shape;
    std::replace(trial.begin(), trial.end(), int64_t{-1}, 2 * program.unit);
  }
  std::vector<std::string> names;
  for (const ExportedOutput& output : program.outputs) names.push_back(output.name);
  auto run = [function = function_of(path, program, device, options.operators),
              names](const std::vector<at::Tensor>& batch) {
    const std::vector<at::Tensor> outputs = (*function)(batch);
    for (size_t i = 0; i < outputs.size(); ++i) named(names[i], outputs[i]);
  };
  OfflinePredictor predictor({
      .inputs = inputs,
      .tower_func = run,
      .output_names = names,
      .session = std::move(options.session),
      .graph = {.device = device, .seed = 0},  // nothing is drawn
  });
  return {std::move(predictor), std::move(inputs), std::move(names)};
}

}  // namespace tensorpack
