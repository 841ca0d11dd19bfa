// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/model_desc.h"

using tensorpack::AnyModel;
using tensorpack::ModelDesc;

struct MyModel : ModelDesc {};

void hand_over(MyModel& model, ModelDesc& base) {
  // error: Write std::move(model) to give it away
  AnyModel copied = model;
  // error: of a ModelDesc& only the base would be moved
  AnyModel sliced = std::move(base);
  // error: protected
  ModelDesc only_the_base = std::move(model);
}
