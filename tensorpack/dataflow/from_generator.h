// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/dataflow/generator.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

/// Yields what a coroutine yields; it is called anew for every pass.
///
///   FromGenerator([]() -> Generator<DataPoint> { ...; co_yield datapoint(image, label); })
///
/// A callable that takes an argument gets the number of the pass. Exceptions reach the consumer.
/// What was yielded belongs to the consumer, who may keep it: every datapoint has tensors of its
/// own. To write to one that was yielded, and yield it again, is an Error.
class FromGenerator final : public DataFlow {
 public:
  using Function = std::function<Generator<DataPoint>(int64_t pass)>;

  template <std::invocable<int64_t> F>
  explicit FromGenerator(F function) : FromGenerator(Function(std::move(function)), 0) {}

  template <std::invocable<> F>
  requires(!std::invocable<F, int64_t>) explicit FromGenerator(F function)
      : FromGenerator(Function(WithoutPass<F>{std::move(function)}), 0) {}

  void start(int64_t pass) override {
    generator_ = (*function_)(pass);
    last_.clear();
  }
  std::optional<DataPoint> next() override {
    std::optional<DataPoint> point = generator_.next();
    if (point) check_not_rewritten(*point);
    return point;
  }

 private:
  template <typename F>
  struct WithoutPass {
    F function;
    Generator<DataPoint> operator()(int64_t /*pass*/) { return function(); }
  };

  void check_not_rewritten(const DataPoint& point) {
    for (size_t i = 0; i < std::min(point.size(), last_.size()); ++i) {
      TP_CHECK(
          !point[i].is_same(last_[i].tensor) || detail::version_of(point[i]) == last_[i].version,
          "FromGenerator",
          "component {} was written to after it was yielded, and is yielded again: a queue or "
          "shuffle() that keeps the first datapoint would have the second one in its place. "
          "Make a new tensor for every datapoint, or yield its clone().",
          i);
    }
    last_.clear();
    for (const at::Tensor& tensor : point) last_.push_back({tensor, detail::version_of(tensor)});
  }

  // A component as it was when it was yielded.
  struct Yielded {
    at::Tensor tensor;
    int64_t version;
  };

  FromGenerator(Function function, int64_t pass)
      : function_(std::make_unique<Function>(std::move(function))),
        generator_((*function_)(pass)) {}

  // On the heap: the coroutine refers to the captures of its lambda, which therefore must not move.
  std::unique_ptr<Function> function_;
  Generator<DataPoint> generator_;
  std::vector<Yielded> last_;
};

}  // namespace tensorpack
