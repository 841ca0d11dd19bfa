// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/dataflow/remote/zmq.h"
#include "tensorpack/input_source/input_source.h"

namespace tensorpack {

/// Delivers the batches that other processes send with send_dataflow_zmq(), which ZeroMQ receives
/// on a thread of its own. The data has no passes, and a position in it cannot be gone back to.
class ZMQInput final : public InputSource {
 public:
  explicit ZMQInput(std::vector<std::string> addresses, RemoteDataOptions options = {});

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override { return position_; }
  bool is_endless() const override { return true; }
  void stop() override { stopped_ = true; }

 private:
  RemoteDataZMQ data_;
  int64_t position_ = 0;
  bool stopped_ = false;
};

}  // namespace tensorpack
