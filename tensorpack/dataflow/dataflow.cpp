// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataflow.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

// Apart, so that a check is a comparison where it is inlined.
void detail::throw_no_component(size_t index, size_t components) {
  throw make_error("DataPoint", "there is no component {}: the datapoint has {}. Count from 0.",
                   index, components);
}

}  // namespace tensorpack
