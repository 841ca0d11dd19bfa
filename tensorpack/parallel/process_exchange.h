// SPDX-License-Identifier: Apache-2.0
// Averages over the towers of several processes.
#pragma once

#include <memory>
#include <vector>

#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/exchange.h"

namespace tensorpack {

/// What gradients are cast to on their way between processes: half the traffic, fewer digits.
enum class Compression { kNone, kFloat16, kBFloat16 };

struct ProcessExchangeOptions {
  std::shared_ptr<ProcessGroup> processes = {};
  /// Of this process; all have as many.
  size_t towers = 1;
  /// Over all towers of all processes; or the sum.
  bool average = true;
  Compression compression = Compression::kNone;
};

/// Every bucket is added up within the process, if there are several towers, packed into one piece
/// of memory, and added up over the processes while the program goes on.
std::shared_ptr<ExchangeGroup> make_process_exchange(const ProcessExchangeOptions& options);

/// Between the towers of one process, each of which is a rank of its own: for GPUs of their own,
/// whose collective library moves the gradients. `devices` are those of the towers.
std::shared_ptr<ExchangeGroup> make_collective_exchange(const std::vector<c10::Device>& devices,
                                                        bool average);

}  // namespace tensorpack
