// SPDX-License-Identifier: Apache-2.0
// Averages over the towers and processes that train together, as operators of the program.
//
// Note [Exchanging gradients]
// What towers tell each other is part of what they run. An exchange is recorded as two operators:
// `tensorpack::exchange_begin` takes the tensors and gives the memory the averages will be in, and
// `tensorpack::exchange_end` says that they are there. Between them the program goes on: the pass
// overlap_exchanges() moves the first up to the last write of what it takes, and the second down to
// the first read of what it gives. Many tensors are exchanged in buckets, those that the backward
// pass makes first in the first one. Which towers and by which means is not recorded: it is bound
// to the thread when the program runs. Where nothing is bound, while ops are built, recorded and
// verified, an exchange gives back what it was given; so nothing that one tower does alone can make
// the others wait.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// One tower's part in the exchanges of a group. Used by one thread.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// Hands in this tower's tensors, which stay as they are until end(). Returns tensors like them,
  /// which hold the averages over the group once end() has returned, and are the tower's own until
  /// the next begin() with that key. `key` tells the exchanges of a step apart: it is the same in
  /// all towers.
  virtual std::vector<at::Tensor> begin(int64_t key, at::TensorList tensors) = 0;

  /// Waits for the averages of `key`, in the memory that begin() gave. Throws when the group was
  /// aborted.
  virtual void end(int64_t key, at::TensorList averages) = 0;

  /// Whether all it does is issued to a stream of the device, so that it can be captured.
  virtual bool is_capturable() const { return false; }
};

/// The towers of one process that exchange with each other.
class ExchangeGroup {
 public:
  virtual ~ExchangeGroup() = default;

  /// The part of tower number `index`.
  virtual Exchange& member(size_t index) = 0;

  /// Called before each step, when no member is running.
  virtual void start() {}

  /// Called on a member's thread when it has done its part of a step, or has failed to.
  virtual void finish(size_t /*index*/) {}

  /// Member number `index` has failed: whoever waits in this step, or is about to, throws.
  virtual void abort(size_t index) = 0;
};

/// How much is exchanged at a time unless a tower says otherwise: enough for the bandwidth, little
/// enough to start early.
inline constexpr int64_t kDefaultBucketBytes = 4 << 20;

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

/// The exchange that is bound to this thread, or nullptr.
Exchange* current_exchange();

/// The average of each tensor over the towers and processes that train together, or the sum, as
/// these were told. Called in a tower function or its body; where the tower exchanges nothing,
/// returns the tensors themselves. Has no derivative.
///
/// `is_due`, a boolean scalar that is the same in all towers, leaves an exchange out: where it is
/// false, every tower gets its own values back. It is looked at in the memory of the host; where it
/// is on a device, all is exchanged always. See Note [Deciding on the host].
std::vector<at::Tensor> average_over_towers(const std::vector<at::Tensor>& tensors,
                                            const at::Tensor& is_due = {});

/// The average of a tensor over the towers that train together, through which gradients flow back
/// to all of them: what BatchNormOptions::sync_statistics waits for.
at::Tensor average_across_towers(const at::Tensor& tensor);

}  // namespace tensorpack
