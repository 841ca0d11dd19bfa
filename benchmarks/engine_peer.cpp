// SPDX-License-Identifier: Apache-2.0
// Stock eager: a plain training loop on libtorch with its own optimizer, allocator and layout. In a
// process of its own, because two allocators in one process share a heap and its history.
//
//   bench_engine_peer <model> <threads>
#include <ATen/Parallel.h>
#include <ATen/core/ivalue.h>  // as in tensorpack.h
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <chrono>
#include <iostream>
#include <memory>

#include "benchmarks/engine_models.h"

namespace tensorpack::bench {
namespace {

// Parameters in the order of their use, as members of a module would be.
class StockParameters {
 public:
  at::Tensor weight(const std::string&, at::IntArrayRef shape) {
    return next([&] {
      const double fan = static_cast<double>(c10::multiply_integers(shape) / shape[0]);
      return trained(at::randn(shape) * std::sqrt(2 / fan));
    });
  }
  at::Tensor bias(const std::string&, int64_t size) {
    return next([&] { return trained(at::zeros({size})); });
  }
  at::Tensor scale(const std::string&, int64_t size) {
    return next([&] { return trained(at::ones({size})); });
  }
  at::Tensor statistic(const std::string&, int64_t size, double first) {
    return next([&] { return at::full({size}, first); });
  }
  void rewind() { cursor_ = 0; }
  const std::vector<at::Tensor>& trainable() const { return trainable_; }

 private:
  at::Tensor trained(at::Tensor value) {
    trainable_.push_back(value.detach().set_requires_grad(true));
    return trainable_.back();
  }
  template <typename Make>
  at::Tensor next(Make make) {
    if (cursor_ == all_.size()) all_.push_back(make());
    return all_[cursor_++];
  }

  std::vector<at::Tensor> all_, trainable_;
  size_t cursor_ = 0;
};

int serve(const std::string& model, int threads) {
  at::set_num_threads(threads);
  const Workload work = workload(model);
  const at::Tensor x = at::randn(work.batch);
  const at::Tensor y = at::randint(0, 10, {work.batch[0]}, at::TensorOptions(at::kLong));
  StockParameters parameters;
  logits_of(model, parameters, x);
  torch::optim::SGD optimizer(parameters.trainable(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto step = [&] {
    parameters.rewind();
    optimizer.zero_grad();
    at::cross_entropy_loss(logits_of(model, parameters, x), y).backward();
    optimizer.step();
  };
  std::cout << "ready" << std::endl;
  for (int64_t steps = 0; std::cin >> steps;) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) step();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    std::cout << taken.count() << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace tensorpack::bench

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  return tensorpack::bench::serve(argv[1], std::stoi(argv[2]));
}
