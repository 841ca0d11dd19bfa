// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/graph/variable_store.h"
#include "tensorpack/monitors/layer_time.h"
#include "tensorpack/monitors/report/data.h"

namespace tensorpack {
struct Trace;
}

namespace tensorpack::report {

/// The variables of a model, without copies and without what optimizers keep.
std::vector<Parameter> list_parameters(const VariableStore& variables);

/// The scopes in which operators of a step ran, in the order of the first of each; those of the
/// backward pass are with the layers they differentiate.
std::vector<Layer> list_layers(const Trace& trace);

/// Adds what the recording does not know: shapes of outputs, for any batch ("N"), and numbers of
/// trained elements.
void complete_layers(std::vector<Layer>& layers, const std::vector<Parameter>& parameters,
                     const std::map<std::string, TensorSpec>& outputs);

/// Adds what layers took in a step; a layer that is not in the list is put at its end.
void add_times(std::vector<Layer>& layers, const std::vector<LayerTime>& times);

}  // namespace tensorpack::report
