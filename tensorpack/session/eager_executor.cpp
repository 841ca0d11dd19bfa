// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/eager_executor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Of predictions that fetch other tensors each time only so many are remembered.
constexpr size_t kMostCalls = 1024;

thread_local int eager_calls = 0;

struct [[nodiscard]] EagerCallScope {
  EagerCallScope() { ++eager_calls; }
  ~EagerCallScope() { --eager_calls; }
  EagerCallScope(const EagerCallScope&) = delete;
  EagerCallScope& operator=(const EagerCallScope&) = delete;
};

}  // namespace

bool is_in_eager_call() { return eager_calls > 0; }

class EagerExecutor::Call final : public PreparedOp {
 public:
  Call(Op op, std::vector<std::string> fetches, Precision precision)
      : op_(std::move(op)), fetches_(std::move(fetches)), precision_(precision) {}

  bool is_of(const Op& op, const std::vector<std::string>& fetches) const {
    return op_ == op && fetches_ == fetches;
  }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    const EagerCallScope scope;
    const TowerPrecision precision(precision_);
    // A batch may be the user's own data, and the function may write to it.
    std::vector<at::Tensor> own;
    for (const at::Tensor& input : inputs) own.push_back(input.clone());
    const NamedTensors outputs = op_.run_body(own, fetches_);
    std::vector<at::Tensor> values;
    at::NoGradGuard no_grad;
    for (const std::string& name : fetches_) {
      auto found = outputs.find(name);
      TP_CHECK(
          found != outputs.end(), "run '" + op_.name() + "'",
          "the tensor '{}' was named when the op was built but not in this run. Name it in every "
          "call.",
          name);
      values.push_back(found->second.detach().clone());
    }
    return values;
  }

 private:
  Op op_;
  std::vector<std::string> fetches_;
  Precision precision_;
};

EagerExecutor::EagerExecutor(ExecutorOptions options) : options_(options) {}

EagerExecutor::~EagerExecutor() = default;

PreparedOp& EagerExecutor::prepare(const Op& op, const std::vector<at::Tensor>&,
                                   const std::vector<std::string>& fetches) {
  const auto found = std::find_if(calls_.begin(), calls_.end(),
                                  [&](const Call& call) { return call.is_of(op, fetches); });
  if (found != calls_.end()) {
    calls_.splice(calls_.end(), calls_, found);  // what runs now is not the first to be forgotten
    return *found;
  }
  if (calls_.size() == kMostCalls) calls_.pop_front();
  return calls_.emplace_back(op, fetches, options_.precision);
}

}  // namespace tensorpack
