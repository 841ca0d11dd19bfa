// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <utility>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/generator.h"
#include "tensorpack/dataflow/rng.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

struct FromGeneratorOptions {
  /// Where random numbers come from; by default global_seed().
  std::optional<uint64_t> seed = {};
};

/// Yields what a coroutine yields; it is called again for every pass, when its first datapoint is
/// asked for.
///
///   FromGenerator([]() -> Generator<DataPoint> { ...; co_yield datapoint(image, label); })
///
/// A callable that takes an argument gets the number of the pass, or an Rng that is the pass's own,
/// or both in this order. What torch::rand() and other operators draw in it is the same whenever
/// the pass is read. Exceptions reach the consumer.
///
/// What was yielded belongs to the consumer, who may keep it: every datapoint has tensors of its
/// own. To write to one that was yielded, and yield it again, is an Error.
class FromGenerator final : public DataFlow {
 public:
  using Function = std::function<Generator<DataPoint>(int64_t pass, Rng& rng)>;

  template <typename F>
  requires(
      std::invocable<F&> || std::invocable<F&, int64_t> || std::invocable<F&, Rng&> ||
      std::invocable<F&, int64_t, Rng&>) explicit FromGenerator(F function,
                                                                FromGeneratorOptions options = {})
      : FromGenerator(Function([function = std::move(function)](int64_t pass, Rng& rng) mutable {
                        if constexpr (std::invocable<F&, int64_t, Rng&>) {
                          return function(pass, rng);
                        } else if constexpr (std::invocable<F&, int64_t>) {
                          return function(pass);
                        } else if constexpr (std::invocable<F&, Rng&>) {
                          return function(rng);
                        } else {
                          return function();
                        }
                      }),
                      options, Called()) {}
  FromGenerator(FromGenerator&&) noexcept;
  FromGenerator& operator=(FromGenerator&&) noexcept;
  ~FromGenerator() override;

  void start(int64_t pass) override;
  std::optional<DataPoint> next() override;

 private:
  struct Called {};
  FromGenerator(Function function, FromGeneratorOptions options, Called);

  // On the heap: the coroutine refers to the captures of its lambda and to the random numbers,
  // which therefore must not move.
  struct State;
  detail::Pimpl<State> state_;
};

}  // namespace tensorpack
