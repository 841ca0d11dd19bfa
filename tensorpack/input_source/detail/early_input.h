// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/input_source/proxy_input_source.h"

namespace tensorpack::detail {

/// Another source, whose first batch can be looked at before the loop takes it.
class EarlyInput final : public ProxyInputSource {
 public:
  using ProxyInputSource::ProxyInputSource;

  /// Takes the batch that next() will give, and throws an Error unless it fits the signature. What
  /// is not in it has to be fed in every run.
  void check_first_batch(const std::vector<TensorSpec>& inputs);

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override {
    return early_position_.value_or(ProxyInputSource::position());
  }
  void stop() override;

 private:
  std::optional<DataPoint> first_;         // taken early
  std::optional<int64_t> early_position_;  // before it was
  bool has_ended_ = false;                 // there was none to take
};

}  // namespace tensorpack::detail
