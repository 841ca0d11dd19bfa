// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/callback.h"

#include <cxxabi.h>

#include <cstdlib>
#include <typeinfo>

#include "tensorpack/utils/error.h"

namespace tensorpack {

std::string Callback::name() const {
  int status = 0;
  char* text = abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : typeid(*this).name();
  std::free(text);
  return name.substr(name.rfind(':') + 1);  // without namespaces
}

TrainerBase& Callback::trainer() const {
  TP_CHECK(trainer_ != nullptr, name(),
           "it belongs to no trainer yet. Use the trainer in setup_graph() or later.");
  return *trainer_;
}

}  // namespace tensorpack
