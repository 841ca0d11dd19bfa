// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/owned_list.h"

struct Flow {
  virtual ~Flow() = default;
};
struct Numbers : Flow {};

struct Config {
  tensorpack::Owned<Flow> dataflow = {};
  tensorpack::OwnedList<Flow> flows = {};
};

void launch(Config config);

void forget_to_move() {
  Numbers value;
  auto pointer = std::make_unique<Flow>();
  // error: Write std::move(object) to give it away
  // not: no matching function
  // not: could not convert
  launch({.dataflow = value});
  launch({.dataflow = pointer});
  launch({.flows = {Numbers(), value}});
}
