// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/unused_losses.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <unordered_set>

namespace tensorpack {
namespace {

using AutogradNode = torch::autograd::Node;  // there is another Node in graph/

// Every node of the autograd graph that `tensor` was computed by.
std::unordered_set<const AutogradNode*> ancestors_of(const at::Tensor& tensor) {
  std::unordered_set<const AutogradNode*> seen;
  std::vector<const AutogradNode*> waiting{tensor.grad_fn().get()};
  while (!waiting.empty()) {
    const AutogradNode* node = waiting.back();
    waiting.pop_back();
    if (node == nullptr || !seen.insert(node).second) continue;
    for (const auto& edge : node->next_edges()) waiting.push_back(edge.function.get());
  }
  return seen;
}

}  // namespace

std::vector<std::string> unused_regularization_losses(const CallScope& call,
                                                      const at::Tensor& cost) {
  const CallScope::CollectionItems& losses = call.collection(Collection::kRegularizationLosses);
  if (losses.empty()) return {};
  const std::unordered_set<const AutogradNode*> used = ancestors_of(cost);
  std::vector<std::string> unused;
  for (const auto& [name, loss] : losses) {
    const AutogradNode* made_by = loss.grad_fn().get();
    if (made_by != nullptr && !used.contains(made_by)) unused.push_back(name);
  }
  return unused;
}

}  // namespace tensorpack
