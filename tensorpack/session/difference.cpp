// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/difference.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/session/comparison.h"

namespace tensorpack {

std::string place_of(const Node& node, size_t index) {
  return fmt::format("node {}, {}{}", index, node.op_name(), in_scope(node.scope));
}

std::vector<at::Tensor> copies_on(c10::Device device, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false,
                               /*copy=*/true));
  }
  return copies;
}

std::string difference_in_results(const Trace& trace, const Recording& recording,
                                  const std::vector<at::Tensor>& inputs) {
  const Unwatched unwatched;
  std::vector<c10::IValue> slots = make_slots(trace, inputs);
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    run_node(node, slots);
    size_t k = 0;
    const std::vector<at::Tensor>& expected = recording.results[i];
    for (const Result& result : node.results) {
      for (ValueId id : result.ids) {
        if (k >= expected.size()) break;
        const at::Tensor& eager = expected[k++];
        if (id != kNoValue && !is_equal(slots[id].toTensor(), eager)) {
          return fmt::format("{}: its result differs", place_of(node, i));
        }
      }
    }
  }
  return "";
}

}  // namespace tensorpack
