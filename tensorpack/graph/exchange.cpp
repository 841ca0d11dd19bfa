// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/exchange.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <utility>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/utils/thread_frame.h"

namespace tensorpack {
namespace {

struct BoundExchange {
  Exchange* exchange = nullptr;
};

Exchange* bound_exchange() { return ThreadFrame::current().get<BoundExchange>().exchange; }

std::vector<at::Tensor> exchange_begin(at::TensorList tensors, int64_t key) {
  if (Exchange* exchange = bound_exchange()) return exchange->begin(key, tensors);
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

void exchange_end(at::TensorList averages, int64_t key) {
  if (Exchange* exchange = bound_exchange()) exchange->end(key, averages);
}

template <typename Function>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace

ExchangeScope::ExchangeScope(Exchange* exchange)
    : outer_(std::exchange(ThreadFrame::current().get<BoundExchange>().exchange, exchange)) {}

ExchangeScope::~ExchangeScope() { ThreadFrame::current().get<BoundExchange>().exchange = outer_; }

std::vector<at::Tensor> average_over_towers(const std::vector<at::Tensor>& tensors) {
  static const auto begin = find_operator<decltype(exchange_begin)>("tensorpack::exchange_begin");
  static const auto end = find_operator<decltype(exchange_end)>("tensorpack::exchange_end");
  CallScope* call = CallScope::current();
  if (call == nullptr || !call->options().exchanges || tensors.empty()) return tensors;
  const int64_t key = call->next_exchange();
  std::vector<at::Tensor> averages = begin.call(tensors, key);
  end.call(averages, key);
  return averages;
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("exchange_begin(Tensor[] tensors, int key) -> Tensor[]");
  library.def("exchange_end(Tensor(a!)[] averages, int key) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("exchange_begin", exchange_begin);
  library.impl("exchange_end", exchange_end);
}

}  // namespace tensorpack
