// SPDX-License-Identifier: Apache-2.0
// State that towers do not share.
#pragma once

#include <c10/util/ArrayRef.h>

#include <string>

#include "tensorpack/graph/initializer.h"
#include "tensorpack/graph/variable_store.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct TowerVariableOptions {
  Initializer init = {};  ///< zeros when empty
  c10::ScalarType dtype = c10::kFloat;
};

/// A variable that the tower being called has for itself, whatever variables towers share
/// otherwise: a counter, a cache, statistics of its own data. It is called "tower0/count" in the
/// first tower, is a local variable (neither trained nor saved), and nothing makes it equal to
/// those of other towers or processes.
///
/// Throws an Error in prediction, as for other local variables, and where get_variable() would.
at::Tensor get_tower_variable(const std::string& name, at::IntArrayRef shape,
                              TowerVariableOptions options = {});

/// The name in the graph: "tower1/count".
std::string tower_variable_name(int tower, const std::string& name);

bool is_tower_variable(const Variable& variable);

}  // namespace tensorpack
