// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/foreign_leaves.h"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/recorder.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

// The tensors at the ends of the history of `tensor`.
std::vector<at::Tensor> leaves_of(const at::Tensor& tensor) {
  std::vector<at::Tensor> leaves;
  std::unordered_set<const Node*> seen;
  std::vector<Node*> waiting{tensor.grad_fn().get()};
  while (!waiting.empty()) {
    Node* node = waiting.back();
    waiting.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    if (const auto* leaf = dynamic_cast<const AccumulateGrad*>(node)) {
      leaves.push_back(leaf->variable);
    }
    for (const auto& edge : node->next_edges()) waiting.push_back(edge.function.get());
  }
  return leaves;
}

}  // namespace

void warn_of_foreign_leaves(const at::Tensor& cost) {
  const CallScope* call = CallScope::current();
  if (call == nullptr) return;
  std::vector<std::string> shapes;
  for (const at::Tensor& leaf : leaves_of(cost)) {
    if (call->graph().variables().owner_of(leaf) != nullptr) continue;
    // Not a copy of the data that the function differentiates by itself, as a gradient penalty
    // does.
    if (is_computed_from_inputs(leaf).value_or(true)) continue;
    shapes.push_back(fmt::format("[{}]", fmt::join(leaf.sizes(), ", ")));
  }
  if (shapes.empty()) return;
  logging::warning_once(
      "The cost depends on {} requiring gradients outside the variables of the graph, of shape {}: "
      "nothing of that is trained or saved. Use get_variable(); a torch::nn module becomes part of "
      "the graph by adopt().",
      counted(std::ssize(shapes), "tensor"), join(shapes, ", "));
}

}  // namespace tensorpack
