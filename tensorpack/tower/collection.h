// SPDX-License-Identifier: Apache-2.0
// Collections of the user's own: tensors and variables of a tower that belong together.
//
//   add_to_collection("attention", named("map", weights));         // in the tower function
//   fetches = collected_names(graph(), "attention");               // in a callback, afterwards
//
// They belong to one call of the tower function: towers do not see each other's, and a call begins
// with empty ones.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Adds a tensor that has a name, or a variable, to a collection of the tower being called, and
/// returns it. Throws an Error for one without a name.
at::Tensor add_to_collection(const std::string& collection, at::Tensor tensor);

/// What this call of the tower function has added so far.
std::vector<at::Tensor> get_collection(const std::string& collection);

/// The names of what a tower added while it was defined, in order: to be fetched, or given to
/// TowerHandle::get_tensors(). The first training tower's when `tower` is empty. Throws an Error
/// with the nearest names when there is no such collection.
std::vector<std::string> collected_names(Graph& graph, const std::string& collection,
                                         const std::string& tower = "");

}  // namespace tensorpack
