// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/phase_log.h"

#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {

PhaseLog::~PhaseLog() {
  const auto peak = static_cast<std::uint64_t>(device_memory(device_).peak_allocated);
  const std::string memory =
      peak == 0 ? "" : ", peak memory of " + device_.str() + " so far " + humanize_bytes(peak);
  logging::debug("Op '{}': {} took {:.3f} s{}.", op_name_, phase_, timer_.seconds(), memory);
}

}  // namespace tensorpack
