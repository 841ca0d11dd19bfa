// SPDX-License-Identifier: Apache-2.0
// Predictions by a file, without the model's source.
//
//   ExportedModel model = load_exported_model("fashion.tpx", {.device = torch::kCUDA});
//   Tensor logits = model(images)[0];
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/predict/offline_predictor.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct ExportedModelOptions {
  c10::Device device = c10::kCPU;
  SessionOptions session = {};
  /// Operators that the file may call, too, of other libraries ("torchvision::roi_align") or of
  /// libtorch (see ExportOptions). Their arguments are not checked: name only what may be called
  /// with any.
  std::vector<std::string> operators = {};
};

/// A model from a file. It is called, and may be shared by threads, as an OfflinePredictor.
class ExportedModel {
 public:
  ExportedModel(OfflinePredictor predictor, std::vector<TensorSpec> inputs,
                std::vector<std::string> output_names)
      : predictor_(std::move(predictor)),
        inputs_(std::move(inputs)),
        output_names_(std::move(output_names)) {}

  /// One tensor per input, on any device; returns one per output, on the device of the model. The
  /// first call with each batch size prepares a program for it.
  template <typename... Inputs>
  std::vector<at::Tensor> operator()(const Inputs&... inputs) const {
    return predictor_(inputs...);
  }

  /// What it takes; -1 is the batch size.
  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  const std::vector<std::string>& output_names() const { return output_names_; }

 private:
  OfflinePredictor predictor_;
  std::vector<TensorSpec> inputs_;
  std::vector<std::string> output_names_;
};

/// Reads a file that export_model() wrote. Throws an Error that names the file and what is wrong
/// with it: damage, or an operator that this libtorch does not know or a file may not call.
ExportedModel load_exported_model(const std::filesystem::path& path,
                                  ExportedModelOptions options = {});

}  // namespace tensorpack
