// SPDX-License-Identifier: Apache-2.0
// Apart from error.cpp, which needs no libtorch.
#include <c10/util/Exception.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {

std::string describe(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    return torch_error->what_without_backtrace();
  }
  return error.what();
}

}  // namespace tensorpack
