// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Generator.h>

#include <initializer_list>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/utils/seed.h"

namespace tensorpack {

/// One component of FakeData, drawn uniformly from low <= x < high.
struct FakeComponent {
  std::vector<int64_t> shape = {};
  at::ScalarType dtype = at::kFloat;
  double low = 0;
  double high = 1;
};

struct FakeDataOptions {
  /// Datapoints per pass.
  int64_t size = 1000;
  /// Whether every datapoint is drawn anew; otherwise one is drawn and yielded again and again.
  bool random = true;
  std::optional<uint64_t> seed = {};
};

/// Yields random tensors, to measure or test whatever comes behind it.
///
///   FakeData({{.shape = {28, 28}}, {.dtype = torch::kLong, .high = 10}}, {.size = 640})
class FakeData final : public DataFlow {
 public:
  explicit FakeData(std::vector<FakeComponent> components, FakeDataOptions options = {});
  explicit FakeData(std::initializer_list<FakeComponent> components, FakeDataOptions options = {});

  void start(int64_t pass) override;
  std::optional<DataPoint> next() override;
  int64_t skip(int64_t count) override;
  std::optional<int64_t> size() const override { return options_.size; }

 private:
  DataPoint draw(int64_t pass, int64_t position);

  std::vector<FakeComponent> components_;
  FakeDataOptions options_;
  StageSeed seed_;
  int64_t pass_ = 0;
  at::Generator generator_;
  std::optional<DataPoint> constant_;
  int64_t position_ = 0;
};

}  // namespace tensorpack
