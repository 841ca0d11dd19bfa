// SPDX-License-Identifier: Apache-2.0
// Runs exported models on batches from files. Knows no model: what it computes is in the files.
//
//   run_exported [MODEL INPUTS OUTPUTS]...
#include <cstdio>
#include <exception>

#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/export/exported_model.h"

int main(int argc, char** argv) {
  using namespace tensorpack;  // NOLINT: a program
  for (int i = 1; i + 2 < argc; i += 3) {
    try {
      const ExportedModel model = load_exported_model(argv[i]);
      const SafetensorsFile batch = read_safetensors(argv[i + 1]);
      std::vector<at::Tensor> inputs;
      for (const TensorSpec& spec : model.inputs()) inputs.push_back(batch.tensors.at(spec.name));
      const std::vector<at::Tensor> values = model(inputs);
      NamedTensors outputs;
      for (size_t k = 0; k < values.size(); ++k) outputs[model.output_names()[k]] = values[k];
      write_safetensors(argv[i + 2], outputs);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", argv[i], error.what());
      return 1;
    }
  }
  return 0;
}
