// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>
#include <vector>

#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/input_source/input_source.h"

namespace tensorpack {

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
  bool end_with_pass() override;
  bool is_endless() const override { return !ends_with_pass_; }
  void stop() override { stopped_ = true; }

 private:
  std::function<DataPoint(int64_t)> function_;
  std::optional<int64_t> size_;
  int64_t position_ = 0;
  bool ends_with_pass_ = false;
  bool is_at_end_ = false;  // of the pass
  bool stopped_ = false;
};

/// The same zeros again and again, for finding out how fast a model trains when data costs nothing.
///
///   DummyConstantInput({{.shape = {64, 3, 224, 224}}, {.shape = {64}, .dtype = torch::kLong}})
TensorInput DummyConstantInput(std::vector<FakeComponent> components,
                               c10::Device device = c10::kCPU);

}  // namespace tensorpack
