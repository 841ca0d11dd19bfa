// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_func.h"

using at::Tensor;
using tensorpack::TowerFunc;

struct Model {
  Tensor build(Tensor x) { return x; }
};

struct OneOrTwo {
  void operator()(Tensor, Tensor = {}) const {}
};

// error: A tower function takes torch::Tensor parameters, one per input
TowerFunc member = &Model::build;

// error: This tower function can be called with different numbers of tensors
TowerFunc one_or_two = OneOrTwo();

// error: A tower function returns a Tensor (the cost), a std::vector<Tensor>, or nothing
TowerFunc number = [](Tensor) { return 1.0; };
