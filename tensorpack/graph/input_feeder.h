// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Where the inputs of ops come from in a run that feeds none. Copies are one feeder: the towers of
/// a training share one. Threads that take from it wait for each other.
class InputFeeder {
 public:
  /// One tensor per input.
  using Batch = std::vector<at::Tensor>;

  InputFeeder() = default;
  /// `next` gives a batch; nullopt when the data has ended.
  template <typename F>
  requires(!std::same_as<std::remove_cvref_t<F>, InputFeeder> &&
           std::is_invocable_r_v<std::optional<Batch>, F&>) InputFeeder(F next)  // NOLINT: implicit
      : InputFeeder(std::function<std::optional<Batch>()>(std::move(next))) {}

  explicit operator bool() const { return source_ != nullptr; }

  /// The next batch; nullopt when the data has ended.
  std::optional<Batch> next() const;

  /// Takes back a batch that was not used: next() gives it again, before all others. Of several,
  /// the last one that was given goes back first.
  void put_back(Batch batch) const;
  /// How many batches were put back and not given again.
  int64_t batches_put_back() const;
  /// Forgets them: the source starts again.
  void reset() const;

  /// How long callers have waited for the source so far, in seconds.
  double seconds_waited() const;

 private:
  struct Source;
  explicit InputFeeder(std::function<std::optional<Batch>()> next);

  std::shared_ptr<Source> source_;
};

}  // namespace tensorpack
