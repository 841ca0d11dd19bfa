// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "tensorpack/dataflow/detail/row_flow.h"

namespace tensorpack {

struct SVHNDigitOptions {
  /// Where train_32x32.mat and the others are. By default `$TENSORPACK_DATASET/svhn_data`, or
  /// tensorpack_data/svhn_data in the home directory.
  std::filesystem::path dir = {};
  /// Whether each pass comes in a new random order; by default all but the test set do.
  std::optional<bool> shuffle = {};
  std::optional<uint64_t> seed = {};
};

/// The cropped digits of the Street View House Numbers: {image: uint8 [32, 32, 3], RGB, label:
/// int64 scalar in 0..9}. The files' label 10 is the digit 0.
///
/// The images share memory: what comes behind must not change them in place. A
/// warning tells of it.
class SVHNDigit final : public detail::RowFlow {
 public:
  /// Reads "train", "test" or "extra" into memory.
  explicit SVHNDigit(std::string_view name, const SVHNDigitOptions& options = {});

  DataPoint row(int64_t number) const override;
  DataPoint stack_rows(const std::vector<int64_t>& numbers) const override;

  /// The mean of the images of this set, float32 [32, 32, 3].
  at::Tensor per_pixel_mean() const;

 private:
  Shared shared() const override { return {"SVHNDigit", {images_, labels_}}; }

  at::Tensor images_;
  at::Tensor labels_;
};

}  // namespace tensorpack
