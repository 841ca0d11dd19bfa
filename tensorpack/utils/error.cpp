// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

void throw_internal_error(const char* file, int line, const char* condition) {
  throw InternalError(
      fmt::format("{}:{}: '{}' does not hold. This is a bug in Tensorpack C++; please report it.",
                  file, line, condition));
}

}  // namespace tensorpack::detail
