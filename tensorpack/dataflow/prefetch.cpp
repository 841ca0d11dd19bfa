// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/prefetch.h"

#include "tensorpack/dataflow/detail/work_ahead.h"

namespace tensorpack {

Stage prefetch(int64_t capacity) {
  return [=](DataFlowPtr flow) {
    const detail::WorkAheadOptions options{.name = "prefetch", .capacity = capacity};
    return std::make_unique<detail::WorkAheadFlow>(std::move(flow), nullptr, /*keeps_all=*/true,
                                                   options, detail::stats_for(options));
  };
}

}  // namespace tensorpack
