// SPDX-License-Identifier: Apache-2.0
// Tensors of a step, or variables, as pictures.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/monitors/image.h"

namespace tensorpack {

struct DumpImageOptions {
  /// What files and images are called; the tensor's name when empty.
  std::string prefix = {};
  /// Makes pictures of the tensor, for to_images().
  std::function<at::Tensor(const at::Tensor&)> map_func = {};
  ImageLayout layout = ImageLayout::kNCHW;
  /// Brings values to 0..255.
  double scale = 255;
};

/// Writes a tensor, input or variable as `<prefix>-ep<epoch>-<i>.png` to the log directory, if
/// there is one, and hands it to the monitors, when triggered.
///
/// A tensor is that of the last step of an epoch. A variable is as it is when triggered.
class DumpTensorAsImage : public Callback {
 public:
  explicit DumpTensorAsImage(std::string tensor_name, DumpImageOptions options = {});

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void trigger() override;

 private:
  void dump(const at::Tensor& tensor) const;

  std::string tensor_name_;
  DumpImageOptions options_;
  FetchedValues fetched_;
};

/// DumpTensorAsImage of a variable, by the name that Tensorpack has for it.
class DumpParamAsImage final : public DumpTensorAsImage {
 public:
  using DumpTensorAsImage::DumpTensorAsImage;
};

}  // namespace tensorpack
