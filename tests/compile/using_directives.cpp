// SPDX-License-Identifier: Apache-2.0
// All names of std, torch and tensorpack in one file: functions are told apart by their arguments.
// docs/api.md lists what is not.
#include <bits/stdc++.h>

#include "tensorpack/tensorpack.h"

using namespace std;
using namespace torch;
using namespace tensorpack;

template <typename T>
constexpr bool kIsTensor = is_same_v<T, torch::Tensor>;

static_assert(is_same_v<tensorpack::Tensor, torch::Tensor>);

void resolves(const torch::Tensor& x, vector<float> v, DataFlowPtr flow) {
  static_assert(is_same_v<decltype(log(1.0F)), float> && kIsTensor<decltype(log(x))>);
  static_assert(is_same_v<decltype(exp(1.0F)), float> && kIsTensor<decltype(exp(x))>);
  static_assert(is_same_v<decltype(max(1, 2)), const int&> && kIsTensor<decltype(max(x))>);
  static_assert(is_same_v<decltype(min(1, 2)), const int&> && kIsTensor<decltype(min(x))>);
  static_assert(is_same_v<decltype(data(v)), float*>);
  static_assert(is_same_v<decltype(size(v)), size_t> && is_same_v<decltype(size(x, 0)), int64_t>);
  static_assert(kIsTensor<decltype(take(x, x))> && is_same_v<decltype(take(10)), Stage>);
  static_assert(is_same_v<decltype(batch(10)), Stage> && is_same_v<decltype(shuffle(10)), Stage>);
  shuffle(v.begin(), v.end(), std::mt19937());
  logging::info("{}", log(2.0));
  const auto keep = [](DataPoint point) { return point; };
  flow = std::move(flow) | map_data(keep) | take(10) | shuffle(10) | batch(2);
}

void qualified(const torch::Tensor& x) {
  static_assert(kIsTensor<decltype(tensorpack::one_hot(x, 2))>);
  [[maybe_unused]] const Initializer zeros = tensorpack::init::zeros();
  FromGenerator([]() -> tensorpack::Generator<DataPoint> { co_yield DataPoint(); });
  throw tensorpack::Error("[here] nothing.");
}
