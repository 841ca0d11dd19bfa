// SPDX-License-Identifier: Apache-2.0
// What a function does otherwise than when it was recorded.
#pragma once

#include <string>

#include "tensorpack/graph/trace.h"

namespace tensorpack {

struct TraceChange {
  enum class Kind {
    kNone,
    kMemory,     ///< a captured tensor is another one, with the same contents
    kContents,   ///< of a tensor that the function made on the host
    kOperators,  ///< it calls others, or on other tensors
    kNumbers,    ///< an operator is given another number, or a captured tensor that was replaced
  };
  Kind kind = Kind::kNone;
  /// "node 3, aten::mul.Tensor in scope 'fc': its argument 'other' was 1 when recorded and is 2
  /// now"; empty if nothing changed.
  std::string where = {};
};

/// Compares two recordings of a function on batches of one shape. What has no effect on an output
/// or on memory that outlives a run is left out. Of several changes, the first one that is more
/// than contents.
TraceChange change_between(const Trace& before, const Trace& now);

}  // namespace tensorpack
