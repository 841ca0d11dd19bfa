// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/input_source/input_source.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack::detail {

/// Another source, whose first batch can be looked at before the loop takes it.
class EarlyInput final : public InputSource {
 public:
  explicit EarlyInput(Owned<InputSource> source) : source_(std::move(source)) {}

  /// Takes the batch that next() will give, and throws an Error unless it fits the signature.
  void check_first_batch(const std::vector<TensorSpec>& inputs);

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override { return early_position_.value_or(source_->position()); }
  std::optional<int64_t> size() const override { return source_->size(); }
  const InputSource& origin() const override { return source_->origin(); }
  std::string name() const override { return source_->name(); }
  std::shared_ptr<const StageStats> stats() const override { return source_->stats(); }
  void stop() override;

 private:
  Owned<InputSource> source_;
  std::optional<DataPoint> first_;         // taken early
  std::optional<int64_t> early_position_;  // before it was
  bool has_ended_ = false;                 // there was none to take
};

}  // namespace tensorpack::detail
