// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/first_program.h"

namespace tensorpack {

Op first_program(const Op& op) {
  if (!op || op.state().kind == Op::State::Kind::kProgram) return op;
  for (const Op& member : op.state().members) {
    if (Op found = first_program(member)) return found;
  }
  return {};
}

}  // namespace tensorpack
