// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/variable_sync.h"

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/optim/wrappers.h"
#include "tensorpack/tower/tower_variable.h"
#include "tensorpack/utils/count_write.h"

namespace tensorpack {
namespace {

using Tensors = std::vector<at::Tensor>;

// Enough for the bandwidth; memory for one message is needed beside the variables.
constexpr size_t kLargestMessage = size_t{32} << 20;

// Tensors of one type and device, up to that size if there are several. All processes have the same
// variables in the same order, and so the same messages.
std::vector<Tensors> messages_of(const Tensors& tensors) {
  struct Open {
    size_t message = 0;
    size_t bytes = 0;
  };
  std::map<std::pair<c10::ScalarType, std::string>, Open> open;
  std::vector<Tensors> messages;
  for (const at::Tensor& tensor : tensors) {
    const auto [found, is_new] = open.try_emplace({tensor.scalar_type(), tensor.device().str()});
    Open& place = found->second;
    if (is_new || place.bytes + tensor.nbytes() > kLargestMessage) {
      place = {.message = messages.size()};
      messages.emplace_back();
    }
    messages[place.message].push_back(tensor);
    place.bytes += tensor.nbytes();
  }
  return messages;
}

// Calls `exchange`, which changes what it is given, with all tensors, packed together.
void exchange_packed(const Tensors& tensors,
                     const std::function<void(const at::Tensor&)>& exchange) {
  for (const Tensors& message : messages_of(tensors)) {
    if (message.size() == 1) {
      exchange(message[0]);
      count_write(message[0]);  // those of collectives are not counted
      continue;
    }
    Tensors flat;
    for (const at::Tensor& tensor : message) flat.push_back(tensor.reshape({-1}));
    const at::Tensor packed = at::cat(flat);
    exchange(packed);
    int64_t offset = 0;
    for (const at::Tensor& tensor : message) {
      tensor.copy_(packed.narrow(0, offset, tensor.numel()).view(tensor.sizes()));
      offset += tensor.numel();
    }
  }
}

}  // namespace

size_t copy_to_replicas(Graph& graph) {
  const auto lock = graph.lock_variables();
  const at::NoGradGuard no_grad;
  size_t copies = 0;
  for (const Variable& variable : graph.variables().all()) {
    for (const Variable* replica : variable.replicas) replica->tensor.copy_(variable.tensor);
    copies += variable.replicas.size();
  }
  return copies;
}

void broadcast_variables(Graph& graph, size_t count, ProcessGroup& processes) {
  const auto lock = graph.lock_variables();
  const at::NoGradGuard no_grad;
  Tensors tensors;
  size_t seen = 0;
  for (const Variable& variable : graph.variables().all()) {
    if (seen++ == count) break;
    if (variable.is_replica() || is_tower_variable(variable)) continue;
    tensors.push_back(variable.tensor.detach());
  }
  exchange_packed(tensors, [&](const at::Tensor& packed) { processes.broadcast(packed); });
}

void average_accumulated_gradients(Graph& graph, ProcessGroup* processes) {
  const auto lock = graph.lock_variables();
  const at::NoGradGuard no_grad;
  std::vector<const Variable*> accumulated;
  for (const Variable& variable : graph.variables().all()) {
    if (!variable.is_replica() && is_accumulated_gradient(variable)) {
      accumulated.push_back(&variable);
    }
  }
  Tensors sums;
  for (const Variable* variable : accumulated) {
    at::Tensor sum = sums.emplace_back(variable->tensor.detach());
    for (const Variable* replica : variable->replicas) sum.add_(replica->tensor.to(sum.device()));
  }
  if (processes != nullptr) {
    exchange_packed(sums, [&](const at::Tensor& packed) { processes->all_reduce(packed)->wait(); });
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto towers = static_cast<double>(accumulated[i]->replicas.size() + 1);
    sums[i].div_(towers * (processes == nullptr ? 1 : processes->size()));
    for (const Variable* replica : accumulated[i]->replicas) replica->tensor.copy_(sums[i]);
  }
}

}  // namespace tensorpack
