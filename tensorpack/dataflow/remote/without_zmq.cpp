// SPDX-License-Identifier: Apache-2.0
// What there is of ZeroMQ where the library was built without it.
#include "tensorpack/dataflow/remote/zmq.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

Error missing() {
  return make_error("ZeroMQ",
                    "the library was built without ZeroMQ. Install it (on Debian: "
                    "libzmq3-dev, cppzmq-dev) and build again.");
}

}  // namespace

struct RemoteDataZMQ::Impl {};

void write_curve_keys(const std::filesystem::path&) { throw missing(); }

int64_t send_dataflow_zmq(DataFlow&, const std::string&, SendZmqOptions) { throw missing(); }

RemoteDataZMQ::RemoteDataZMQ(std::vector<std::string>, RemoteDataOptions) { throw missing(); }
RemoteDataZMQ::RemoteDataZMQ(RemoteDataZMQ&&) noexcept = default;
RemoteDataZMQ::~RemoteDataZMQ() = default;
std::optional<DataPoint> RemoteDataZMQ::next() { return std::nullopt; }

}  // namespace tensorpack
