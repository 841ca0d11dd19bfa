// SPDX-License-Identifier: Apache-2.0
// Exported programs for other runtimes.
#pragma once

#include <filesystem>

#include "tensorpack/export/export_model.h"

namespace tensorpack {

/// The version of ONNX's operators that files are written for.
inline constexpr int kOnnxOpset = 17;

struct OnnxOptions {
  /// Multiply batch norms into the convolutions they follow.
  bool fold_batch_norm = false;
};

/// Writes a program as an ONNX model, all or nothing. The batch is an open dimension. Throws an
/// Error that names operator and layer when an operator has no mapping.
void write_onnx(const std::filesystem::path& path, ExportedProgram program,
                const OnnxOptions& options = {});

/// Records the model, as export_model() does, and writes it as an ONNX model.
void export_onnx(PredictConfig config, const std::filesystem::path& path,
                 const OnnxOptions& options = {});

}  // namespace tensorpack
