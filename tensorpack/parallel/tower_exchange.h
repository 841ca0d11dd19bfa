// SPDX-License-Identifier: Apache-2.0
// The ways in which the towers of one process average their gradients. All add up in the order of
// the towers, so that the same run gives the same bits.
#pragma once

#include <cstddef>
#include <memory>

#include "tensorpack/graph/exchange.h"

namespace tensorpack {

struct TowerExchangeOptions {
  size_t towers = 1;
  /// Or the sum.
  bool average = true;
};

/// Between towers on the CPU, through their memory: each adds up a share of all gradients.
std::shared_ptr<ExchangeGroup> make_shared_memory_exchange(const TowerExchangeOptions& options);

/// Between towers on CUDA devices, by copies and kernels on their streams; several may be on one
/// device. Not part of what is captured.
std::shared_ptr<ExchangeGroup> make_stream_exchange(const TowerExchangeOptions& options);

/// For towers that do not wait for each other: everybody gets its own gradients back, divided by
/// the number of towers if `average` is set, and updates the variables they share when no other one
/// does.
std::shared_ptr<ExchangeGroup> make_async_exchange(const TowerExchangeOptions& options);

}  // namespace tensorpack
