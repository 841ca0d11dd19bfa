// SPDX-License-Identifier: Apache-2.0
// Files with exported programs: safetensors whose metadata hold the program.
#pragma once

#include <filesystem>

#include "tensorpack/export/exported_program.h"

namespace tensorpack {

/// Writes the program with its constants, all or nothing.
void write_program(const std::filesystem::path& path, const ExportedProgram& program);

/// Reads such a file. Checksums of program and tensors are compared. Throws an Error that names the
/// file and what is wrong with it. Runs nothing.
ExportedProgram read_program(const std::filesystem::path& path);

}  // namespace tensorpack
