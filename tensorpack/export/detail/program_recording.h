// SPDX-License-Identifier: Apache-2.0
// From recordings of one function at several batch sizes to the program they are instances of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensorpack/export/exported_program.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack::detail {

/// The batch sizes to record at, in units: two give slopes and offsets, the third checks them.
inline constexpr int64_t kRecordedBatches[] = {3, 5, 7};

/// Makes one program of three recordings, at batches of 3, 5 and 7 units, which hold nothing but
/// what the outputs need. Throws an Error that names operator and layer where they do not fit
/// together, or do what an exported program cannot.
ExportedProgram generalize(const std::vector<Trace>& traces, const std::vector<TensorSpec>& inputs,
                           const std::vector<std::string>& outputs, int64_t unit);

}  // namespace tensorpack::detail
