// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/class_name.h"

#include <cxxabi.h>

#include <cstdlib>

namespace tensorpack {

std::string class_name(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  return name.substr(name.rfind(':') + 1);
}

}  // namespace tensorpack
