// SPDX-License-Identifier: Apache-2.0
// What is used of c10d, without its headers, which differ between libtorch's versions: a store that
// all processes see, and transports that move tensors between them.
#pragma once

#include <c10/core/ScalarType.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

/// A small dictionary that all processes see. Calls throw std::exception when the process that
/// hosts it is gone, and may block when the way to it is cut.
class SharedStore {
 public:
  virtual ~SharedStore() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value of a key that is there.
  virtual std::string get(const std::string& key) = 0;
  virtual bool has(const std::vector<std::string>& keys) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;
  /// Sets a key that is not there yet, and returns the value that stands.
  virtual std::string set_first(const std::string& key, const std::string& value) = 0;
};

struct StoreOptions {
  std::string address;
  int port = 0;
  /// This process is the one that the others connect to.
  bool host = false;
  /// Before every key, so that attempts of one job do not see each other's.
  std::string prefix;
  std::chrono::milliseconds timeout{};
};

/// Connects to the store at a port that listens already, or hosts it. Hangs, or ends the process,
/// where something else listens: see reason_not_store().
std::shared_ptr<SharedStore> open_store(const StoreOptions& options);

/// Why what listens at the port is not a store; an empty text where it is one. Waits for its answer
/// until `deadline`.
std::string reason_not_store(const std::string& address, int port,
                             std::chrono::steady_clock::time_point deadline);

/// A store for one process.
std::shared_ptr<SharedStore> local_store();

/// Something under way between the processes.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// False when it is not done after `at_most`. Throws std::exception when it failed. Where the
  /// work is ordered by streams, only orders them and returns true.
  virtual bool wait(std::chrono::milliseconds at_most) = 0;
  virtual bool done() = 0;
};

/// Moves flat, contiguous tensors of one kind of device between all processes. The destructor waits
/// for unfinished work.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual bool can_reduce(c10::ScalarType dtype) const = 0;
  virtual std::unique_ptr<Transfer> all_reduce(at::Tensor tensor) = 0;
  virtual std::unique_ptr<Transfer> broadcast(at::Tensor tensor, int root) = 0;
  /// `parts` receive `mine` of each rank; all have one size.
  virtual std::unique_ptr<Transfer> all_gather(std::vector<at::Tensor> parts, at::Tensor mine) = 0;
  /// Makes what waits on a device for somebody who will not come end. From any thread.
  virtual void interrupt() {}
};

struct TransportOptions {
  std::shared_ptr<SharedStore> store;
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{};
  /// The address that the others reach this process at.
  std::string address;
};

std::unique_ptr<Transport> make_gloo(const TransportOptions& options);

bool has_nccl();
std::unique_ptr<Transport> make_nccl(const TransportOptions& options);

}  // namespace tensorpack::detail
