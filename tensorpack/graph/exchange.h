// SPDX-License-Identifier: Apache-2.0
// Averages over the towers and processes that train together, as operators of the program.
//
// Note [Exchanging gradients]
// What towers tell each other is part of what they run. An exchange is recorded as two operators:
// `tensorpack::exchange_begin` takes the tensors and gives the memory the averages will be in, and
// `tensorpack::exchange_end` says that they are there. Between them the program goes on: a pass may
// move the first up to the last write of what it takes, and the second down to the first read of
// what it gives. Which towers and by which means is not recorded: it is bound to the thread when
// the program runs. Where nothing is bound, while ops are built, recorded and verified, an exchange
// gives back what it was given; so nothing that one tower does alone can make the others wait.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tensorpack {

/// One tower's part in the exchanges of a group. Used by one thread.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Hands in this tower's tensors. Returns tensors like them, which hold the averages over the
  /// group once end() has returned. `key` tells the exchanges of a step apart: it is the same in
  /// all towers.
  virtual std::vector<at::Tensor> begin(int64_t key, at::TensorList tensors) = 0;

  /// Waits for the averages of `key`, in the memory that begin() gave. Throws when the group was
  /// aborted.
  virtual void end(int64_t key, at::TensorList averages) = 0;
};

/// The towers of one process that exchange with each other.
class ExchangeGroup {
 public:
  virtual ~ExchangeGroup() = default;

  /// The part of tower number `index`.
  virtual Exchange& member(size_t index) = 0;

  /// Called before each step, when no member is running.
  virtual void start() {}

  /// A member has failed: whoever waits in this step, or is about to, throws.
  virtual void abort() = 0;
};

/// While it lives, exchanges on this thread go through `exchange`; through none if it is null.
class [[nodiscard]] ExchangeScope {
 public:
  explicit ExchangeScope(Exchange* exchange);
  ~ExchangeScope();
  ExchangeScope(const ExchangeScope&) = delete;
  ExchangeScope& operator=(const ExchangeScope&) = delete;

 private:
  Exchange* outer_;
};

/// The average of each tensor over the towers that train together. Called in a tower function or
/// its body; where the tower exchanges nothing, returns the tensors themselves.
std::vector<at::Tensor> average_over_towers(const std::vector<at::Tensor>& tensors);

}  // namespace tensorpack
