// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/generator.h"

namespace tensorpack {

/// Yields what a coroutine yields; it is called anew for every pass.
///
///   FromGenerator([]() -> Generator<DataPoint> { ...; co_yield datapoint(image, label); })
///
/// A callable that takes an argument gets the number of the pass. Exceptions reach the consumer.
class FromGenerator final : public DataFlow {
 public:
  using Function = std::function<Generator<DataPoint>(int64_t pass)>;

  template <std::invocable<int64_t> F>
  explicit FromGenerator(F function) : FromGenerator(Function(std::move(function)), 0) {}

  template <std::invocable<> F>
  requires(!std::invocable<F, int64_t>) explicit FromGenerator(F function)
      : FromGenerator(Function(WithoutPass<F>{std::move(function)}), 0) {}

  void start(int64_t pass) override { generator_ = (*function_)(pass); }
  std::optional<DataPoint> next() override { return generator_.next(); }

 private:
  template <typename F>
  struct WithoutPass {
    F function;
    Generator<DataPoint> operator()(int64_t /*pass*/) { return function(); }
  };

  FromGenerator(Function function, int64_t pass)
      : function_(std::make_unique<Function>(std::move(function))),
        generator_((*function_)(pass)) {}

  // On the heap: the coroutine refers to the captures of its lambda, which therefore must not move.
  std::unique_ptr<Function> function_;
  Generator<DataPoint> generator_;
};

}  // namespace tensorpack
