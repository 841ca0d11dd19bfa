// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/record_op.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/results_on_host.h"

namespace tensorpack {
namespace {

// The same memory, yet nobody else's tensor: two inputs may be one, or one that the function knows
// from elsewhere. A batch is large, and a device may have no room for another.
at::Tensor alias_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense() ||
      tensor.is_conj() || tensor.is_neg()) {
    return tensor.detach().clone();
  }
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([kept = tensor](void*) {})
      .options(tensor.options().requires_grad(false))
      .target_device(tensor.device())
      .make_tensor();
}

}  // namespace

RecordedOp record_op(Graph& graph, const Op& op, const std::vector<at::Tensor>& inputs,
                     bool keep_results) {
  const PhaseLog phase(op.name(), op.device(), "recording");
  RecordedOp recorded;
  for (const at::Tensor& input : inputs) recorded.inputs.push_back(alias_of(input));
  RecordOptions options{.keep_results = keep_results};
  options.inputs = recorded.inputs;
  for (const TensorSpec& spec : op.inputs()) options.input_names.push_back(spec.name);
  for (const Variable& variable : graph.variables().all()) {
    options.variables.emplace_back(variable.name, variable.tensor);
  }
  options.function = [&] {
    return ResultsOnHostScope::run([&] { return op.state().body(recorded.inputs); }, op.device());
  };
  options.kept_layer_outputs = op.state().looked_up;
  options.is_output = [&op](const std::string& name) { return op.has_output(name); };
  recorded.recording = record(options);
  return recorded;
}

}  // namespace tensorpack
