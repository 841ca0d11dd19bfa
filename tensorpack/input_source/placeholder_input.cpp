// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/placeholder_input.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

std::optional<DataPoint> PlaceholderInput::next() {
  throw make_error(
      "PlaceholderInput",
      "a run was not given all inputs. Feed them: session.run(op, fetches, {{\"name\", "
      "tensor}}), or train with another input source.");
}

}  // namespace tensorpack
