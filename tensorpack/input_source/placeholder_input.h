// SPDX-License-Identifier: Apache-2.0
#pragma once

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

}  // namespace tensorpack
