// SPDX-License-Identifier: Apache-2.0
// Rewrites of an exported program that keep what it computes.
#pragma once

#include "tensorpack/export/exported_program.h"

namespace tensorpack {

/// Multiplies batch norms into the convolutions they follow: the results round differently. Leaves
/// alone what does not fit: a convolution that is used elsewhere, a norm without statistics.
void fold_batch_norm(ExportedProgram& program);

/// Computes once, now, what depends on constants alone.
void fold_constants(ExportedProgram& program);

}  // namespace tensorpack
