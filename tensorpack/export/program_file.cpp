// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/program_file.h"

#include <ATen/ATen.h>
#include <torch/version.h>

#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/export/detail/program_text.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/hash.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using detail::require;

constexpr const char* kFormat = "tensorpack program";

std::string checksum_text(const std::string& text) { return fmt::format("{:016x}", xxh64(text)); }

const std::string& metadata_of(const SafetensorsFile& file, const char* key) {
  const auto found = file.metadata.find(key);
  require(found != file.metadata.end(), "its metadata has no '{}': it is not an exported model",
          key);
  return found->second;
}

ExportedProgram program_of(const SafetensorsFile& file) {
  require(metadata_of(file, "format") == kFormat, "it is a file of the format '{}'",
          metadata_of(file, "format"));
  const std::string& text = metadata_of(file, "program");
  require(checksum_text(text) == metadata_of(file, "checksum"),
          "its program does not have the checksum it was written with");
  detail::ParsedProgram parsed = detail::parse_program(text);
  for (ExportedConstant& constant : parsed.program.constants) {
    const auto record = parsed.tensors.find(constant.id);
    if (record == parsed.tensors.end()) continue;
    const auto& [name, dtype, shape, order, checksum] = record->second;
    const auto found = file.tensors.find(name);
    require(found != file.tensors.end(), "the tensor '{}' is missing", name);
    const at::Tensor& tensor = found->second;
    require(tensor.scalar_type() == dtype && tensor.sizes() == shape,
            "the tensor '{}' is not of the type and shape that the program says", name);
    require(detail::checksum_of(tensor) == checksum,
            "the tensor '{}' does not have the checksum it was written with", name);
    constant.tensor = detail::in_memory_order(tensor, order);
  }
  return std::move(parsed.program);
}

}  // namespace

void write_program(const fs::path& path, const ExportedProgram& program) {
  NamedTensors tensors;
  for (const ExportedConstant& constant : program.constants) {
    if (constant.tensor.defined()) tensors.emplace(constant.name, constant.tensor);
  }
  const std::string text = detail::format_program(program);
  write_safetensors(path, tensors,
                    {{"format", kFormat},
                     {"program", text},
                     {"checksum", checksum_text(text)},
                     {"tensorpack", TENSORPACK_VERSION},
                     {"libtorch", TORCH_VERSION}});
}

ExportedProgram read_program(const fs::path& path) {
  const SafetensorsFile file = read_safetensors(path);
  try {
    return program_of(file);
  } catch (const detail::Malformed& e) {
    throw make_error("read_program",
                     "'{}' is not a valid exported model: {}. It is damaged or of another kind; "
                     "export the model again.",
                     path.string(), e.what());
  }
}

}  // namespace tensorpack
