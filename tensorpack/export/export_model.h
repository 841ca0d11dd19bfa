// SPDX-License-Identifier: Apache-2.0
// A trained model as one file, which runs without the model's source.
//
//   export_model({.inputs = model.inputs, .tower_func = model.build_graph,
//                 .session_init = SaverRestore("train_log/fashion_mnist"),
//                 .output_names = {"logits"}}, "fashion.tpx");
//
// Note [Any batch size]
// The model is recorded at batches of three sizes. What differs between the first two - sizes in
// views, lengths, shapes of tensors - is taken for a multiple of the batch size plus a constant;
// the third must agree, and the program, run at a fourth, must give what the model gives. Where
// that is not so the operator and its layer are named, and nothing is written.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/predict/offline_predictor.h"

namespace tensorpack {

struct ExportedProgram;

struct ExportOptions {
  /// Operators of libtorch that the model may have, though a file may not call them by itself:
  /// "aten::_pdist_forward". Who loads the file names them, too (ExportedModelOptions::operators).
  std::vector<std::string> operators = {};
};

/// Records the model in prediction mode, on the CPU whatever the configuration says, as a program
/// for batches of any size. Of the inputs, those that the outputs need are kept; each has at most
/// one open dimension (-1), which is the batch, unless TensorSpec::trial_shape fixes the others.
/// With a trial_shape the program is for multiples of its batch size where the model needs them.
///
/// Throws an Error that names operator and layer when the model does what a program for any batch
/// size cannot: draws random numbers, writes variables, rounds the batch size, branches on it.
ExportedProgram export_program(PredictConfig config, const ExportOptions& options = {});

/// Writes the program to a file for load_exported_model(), all or nothing.
void export_model(PredictConfig config, const std::filesystem::path& path,
                  const ExportOptions& options = {});

}  // namespace tensorpack
