// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/export/exported_program.h"

namespace tensorpack {

/// Inputs, outputs, tensors and operators of a program, one per line.
std::string dump_text(const ExportedProgram& program);

}  // namespace tensorpack
