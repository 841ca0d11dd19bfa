// SPDX-License-Identifier: Apache-2.0
// Datapoints from other processes, on this machine or on others, over ZeroMQ.
//
//   send_dataflow_zmq(*flow, "tcp://127.0.0.1:5000");              // in as many processes as
//   needed auto train = RemoteDataZMQ({"tcp://127.0.0.1:5000"}) | batch(128);  // in the one that
//   trains
//
// Senders wait when the receiver is slow. Either side may be started first, and started again.
//
// Where the library was built without ZeroMQ, all of this throws an Error that says so.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

/// Encryption by CURVE, with keys that write_curve_keys() wrote. The side that binds needs its own
/// secret key. The side that connects needs one of its own, too, and the public key of the other.
/// Whoever has that public key may connect: give it to no one else.
struct CurveKeys {
  std::filesystem::path secret_key_file = {};
  std::filesystem::path peer_public_key_file = {};
};

/// Makes a new pair of keys: `path`.secret, which only the owner may read, and `path`.public.
void write_curve_keys(const std::filesystem::path& path);

struct ZmqOptions {
  /// How many datapoints wait at each end at most.
  int high_water_mark = 50;
  /// Larger datapoints are refused: at the sender with an error, at the receiver by closing the
  /// connection.
  int64_t max_bytes = int64_t{1} << 30;
  std::optional<CurveKeys> curve = {};
  /// Addresses that other machines can reach need keys, unless this is set.
  bool allow_unencrypted = false;
};

struct SendZmqOptions {
  ZmqOptions zmq = {};
  /// Whether this is the side with the fixed address; by default the receiver is.
  bool bind = false;
  /// How many passes of the flow to send.
  int64_t passes = kForever;
};

/// Sends the passes of `flow` and returns the number of datapoints, when all are sent, or the
/// thread that it runs on is to end. Throws Interrupted when a signal ends the process.
int64_t send_dataflow_zmq(DataFlow& flow, const std::string& address, SendZmqOptions options = {});

struct RemoteDataOptions {
  ZmqOptions zmq = {};
  bool bind = true;
  /// An error is thrown if nothing comes for so long; 0: never.
  double timeout_seconds = 0;
};

/// Yields what others send with send_dataflow_zmq(), as it comes. It is endless, knows no passes
/// and cannot go back.
///
/// All datapoints must be alike: the same number of components, of the same types and dimensions as
/// in the first. One that is not is an Error. Messages that are no datapoints are left out, with a
/// warning.
class RemoteDataZMQ final : public DataFlow {
 public:
  explicit RemoteDataZMQ(std::vector<std::string> addresses, RemoteDataOptions options = {});
  RemoteDataZMQ(RemoteDataZMQ&&) noexcept;
  ~RemoteDataZMQ() override;

  std::optional<DataPoint> next() override;
  bool is_endless() const override { return true; }

 private:
  struct Impl;
  detail::Pimpl<Impl> impl_;
};

}  // namespace tensorpack
