// SPDX-License-Identifier: Apache-2.0
// Sources that need no dataflow.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <string>
#include <vector>

#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/remote/zmq.h"
#include "tensorpack/input_source/input_source.h"

namespace tensorpack {

/// For models whose inputs are all fed by hand: `session.run(op, {}, {{"image", x}})`.
class PlaceholderInput final : public InputSource {
 public:
  void reset_state(int64_t position = 0) override { position_ = position; }
  /// Throws an Error: a run was not fed.
  std::optional<DataPoint> next() override;
  int64_t position() const override { return position_; }

 private:
  int64_t position_ = 0;
};

/// Delivers what a function returns, which is called for every batch, on the thread that asks. For
/// data that is on the device already, or is made there.
///
///   TensorInput([=](int64_t step) { return DataPoint{torch::randn({64, 100}, device)}; })
class TensorInput final : public InputSource {
 public:
  /// `function` takes the number of the batch: what it returns should depend on that alone. `size`
  /// is the number of batches in a pass, if there are passes.
  explicit TensorInput(std::function<DataPoint(int64_t number)> function,
                       std::optional<int64_t> size = {});

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override { return position_; }
  std::optional<int64_t> size() const override { return size_; }
  void stop() override { stopped_ = true; }

 private:
  std::function<DataPoint(int64_t)> function_;
  std::optional<int64_t> size_;
  int64_t position_ = 0;
  bool stopped_ = false;
};

/// The same zeros again and again, for finding out how fast a model trains when data costs nothing.
///
///   DummyConstantInput({{.shape = {64, 3, 224, 224}}, {.shape = {64}, .dtype = torch::kLong}})
TensorInput DummyConstantInput(std::vector<FakeComponent> components,
                               c10::Device device = c10::kCPU);

/// Delivers the batches that other processes send with send_dataflow_zmq(), which ZeroMQ receives
/// on a thread of its own. The data has no passes, and a position in it cannot be gone back to.
class ZMQInput final : public InputSource {
 public:
  explicit ZMQInput(std::vector<std::string> addresses, RemoteDataOptions options = {});

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override { return position_; }
  void stop() override { stopped_ = true; }

 private:
  RemoteDataZMQ data_;
  int64_t position_ = 0;
  bool stopped_ = false;
};

}  // namespace tensorpack
