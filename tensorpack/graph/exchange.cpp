// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/exchange.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <utility>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack {
namespace {

struct BoundExchange {
  Exchange* exchange = nullptr;
};

// Never looked at on another device, where that would mean to wait for it.
bool is_left_out(const c10::optional<at::Tensor>& is_due) {
  return is_due && is_due->defined() && is_due->is_cpu() && !is_due->item<bool>();
}

std::vector<at::Tensor> exchange_begin(at::TensorList tensors, int64_t key,
                                       const c10::optional<at::Tensor>& is_due) {
  Exchange* exchange = current_exchange();
  if (exchange != nullptr && !is_left_out(is_due)) return exchange->begin(key, tensors);
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

// `tensors`, which were handed in, are an argument so that nothing writes them before.
void exchange_end(at::TensorList averages, at::TensorList /*tensors*/, int64_t key,
                  const c10::optional<at::Tensor>& is_due) {
  Exchange* exchange = current_exchange();
  if (exchange != nullptr && !is_left_out(is_due)) exchange->end(key, averages);
}

// Tensors of one type and device, up to `bytes` if there are several. From the last to the first:
// the backward pass makes the gradients of the last layers first.
std::vector<std::vector<size_t>> buckets_of(const std::vector<at::Tensor>& tensors, int64_t bytes) {
  struct Open {
    size_t bucket = 0;
    int64_t filled = 0;
  };
  std::map<std::pair<c10::ScalarType, std::string>, Open> open;
  std::vector<std::vector<size_t>> buckets;
  for (size_t i = tensors.size(); i-- > 0;) {
    const at::Tensor& tensor = tensors[i];
    const auto size = static_cast<int64_t>(tensor.nbytes());
    const auto [found, is_new] = open.try_emplace({tensor.scalar_type(), tensor.device().str()});
    Open& place = found->second;
    if (is_new || place.filled + size > bytes) {
      place = {.bucket = buckets.size()};
      buckets.emplace_back();
    }
    buckets[place.bucket].push_back(i);
    place.filled += size;
  }
  return buckets;
}

// A part of an exchange: which of the tensors, and what becomes of them.
struct Bucket {
  int64_t key = 0;
  std::vector<size_t> indices = {};
  std::vector<at::Tensor> tensors = {};
  std::vector<at::Tensor> averages = {};
};

// Towers that share variables read all of them until the last gradient is there: nothing may be
// updated before. So all averages are there only when the last bucket's are.
Bucket last_of_all(const std::vector<Bucket>& buckets) {
  Bucket last{.key = buckets.back().key};
  for (const Bucket& bucket : buckets) {
    last.tensors.insert(last.tensors.end(), bucket.tensors.begin(), bucket.tensors.end());
    last.averages.insert(last.averages.end(), bucket.averages.begin(), bucket.averages.end());
  }
  return last;
}

// If m is the average of all towers' m_i, the derivative of all costs with respect to m_i is the
// average of what each tower's cost says about m.
class AverageAcrossTowers : public torch::autograd::Function<AverageAcrossTowers> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& tensor) {
    return average_over_towers({tensor})[0];
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return average_over_towers(gradients);
  }
};

}  // namespace

Exchange* current_exchange() { return ThreadFrame::current().get<BoundExchange>().exchange; }

ExchangeScope::ExchangeScope(Exchange* exchange)
    : outer_(std::exchange(ThreadFrame::current().get<BoundExchange>().exchange, exchange)) {}

ExchangeScope::~ExchangeScope() { ThreadFrame::current().get<BoundExchange>().exchange = outer_; }

std::vector<at::Tensor> average_over_towers(const std::vector<at::Tensor>& tensors,
                                            const at::Tensor& is_due) {
  static const auto begin = find_operator<decltype(exchange_begin)>("tensorpack::exchange_begin");
  static const auto end = find_operator<decltype(exchange_end)>("tensorpack::exchange_end");
  CallScope* call = CallScope::current();
  if (call == nullptr || !call->options().exchanges || tensors.empty()) return tensors;
  const c10::optional<at::Tensor> due =
      is_due.defined() ? c10::optional<at::Tensor>(is_due) : c10::nullopt;
  std::vector<Bucket> buckets;
  for (std::vector<size_t>& indices : buckets_of(tensors, call->options().bucket_bytes)) {
    Bucket& bucket = buckets.emplace_back();
    bucket.key = call->next_exchange();
    bucket.indices = std::move(indices);
    for (size_t i : bucket.indices) bucket.tensors.push_back(tensors[i]);
    bucket.averages = begin.call(bucket.tensors, bucket.key, due);
  }
  std::vector<at::Tensor> averages(tensors.size());
  const bool are_shared = call->options().updates != VariableUpdates::kOwn;
  for (const Bucket& bucket : buckets) {
    const bool waits_for_all = are_shared && &bucket == &buckets.back();
    const Bucket& ended = waits_for_all ? last_of_all(buckets) : bucket;
    end.call(ended.averages, ended.tensors, ended.key, due);
    for (size_t i = 0; i < bucket.indices.size(); ++i) {
      averages[bucket.indices[i]] = bucket.averages[i];
    }
  }
  return averages;
}

at::Tensor average_across_towers(const at::Tensor& tensor) {
  return AverageAcrossTowers::apply(tensor);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("exchange_begin(Tensor[] tensors, int key, Tensor? is_due) -> Tensor[]");
  library.def(
      "exchange_end(Tensor(a!)[] averages, Tensor[] tensors, int key, Tensor? is_due) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("exchange_begin", exchange_begin);
  library.impl("exchange_end", exchange_end);
}

}  // namespace tensorpack
