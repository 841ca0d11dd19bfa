// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/callback.h"

#include "tensorpack/utils/class_name.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

std::string Callback::name() const { return class_name(typeid(*this)); }

TrainerBase& Callback::trainer() const {
  TP_CHECK(trainer_ != nullptr, name(),
           "it belongs to no trainer yet. Use the trainer in setup_graph() or later.");
  return *trainer_;
}

}  // namespace tensorpack
