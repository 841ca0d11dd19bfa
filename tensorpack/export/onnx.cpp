// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/onnx.h"

#include "tensorpack/export/detail/onnx_node.h"
#include "tensorpack/export/detail/program_uses.h"
#include "tensorpack/export/exported_program.h"
#include "tensorpack/export/passes.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {

void write_onnx(const std::filesystem::path& path, ExportedProgram program,
                const OnnxOptions& options) {
  if (options.fold_batch_norm) fold_batch_norm(program);
  fold_constants(program);
  detail::ProgramUses(program).check_writes(program);
  detail::OnnxConversion conversion(program);
  for (const ExportedNode& node : program.nodes) conversion.add(node);
  conversion.add_outputs();
  write_file_atomically(path, conversion.graph().serialize(kOnnxOpset));
}

void export_onnx(PredictConfig config, const std::filesystem::path& path,
                 const OnnxOptions& options) {
  write_onnx(path, export_program(std::move(config)), options);
}

}  // namespace tensorpack
