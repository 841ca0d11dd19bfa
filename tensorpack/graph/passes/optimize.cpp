// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/passes/passes.h"

namespace tensorpack {

void optimize(Trace& trace, const std::vector<std::string>& fetches) {
  eliminate_dead_code(trace, fetches);
  fold_constants(trace);
  fold_views(trace);
  merge_common_subexpressions(trace);
  eliminate_dead_code(trace, fetches);  // what folding and merging left without a reader
}

}  // namespace tensorpack
