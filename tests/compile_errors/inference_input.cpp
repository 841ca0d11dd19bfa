// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inference_runner.h"

void validate(tensorpack::DataFlowPtr data, tensorpack::OwnedList<tensorpack::Inferencer> all) {
  // error: Write std::move(data) to give the data away
  tensorpack::InferenceRunner(data, std::move(all));
}
