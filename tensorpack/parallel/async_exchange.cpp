// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <mutex>

#include "tensorpack/parallel/tower_exchange.h"

namespace tensorpack {
namespace {

class AsyncExchange final : public ExchangeGroup {
 public:
  explicit AsyncExchange(const TowerExchangeOptions& options)
      : scale_(options.average ? 1.0 / static_cast<double>(options.towers) : 1.0) {
    for (size_t i = 0; i < options.towers; ++i) members_.push_back(std::make_unique<Member>(*this));
  }

  Exchange& member(size_t index) override { return *members_[index]; }
  void finish(size_t index) override { members_[index]->turn_.reset(); }
  void abort(size_t /*index*/) override {}

 private:
  struct Member final : Exchange {
    explicit Member(AsyncExchange& group) : group_(group) {}

    std::vector<at::Tensor> begin(int64_t, at::TensorList tensors) override {
      std::vector<at::Tensor> scaled;
      for (const at::Tensor& tensor : tensors) scaled.push_back(tensor * group_.scale_);
      return scaled;
    }

    // From here on the tower updates variables, until it has done its part.
    void end(int64_t, at::TensorList) override {
      if (!turn_) turn_ = std::make_unique<std::lock_guard<std::mutex>>(group_.updating_);
    }

    AsyncExchange& group_;
    std::unique_ptr<std::lock_guard<std::mutex>> turn_;
  };

  double scale_;
  std::mutex updating_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace

std::shared_ptr<ExchangeGroup> make_async_exchange(const TowerExchangeOptions& options) {
  return std::make_shared<AsyncExchange>(options);
}

}  // namespace tensorpack
