// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/feedfree_predictor.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

FeedfreePredictor::FeedfreePredictor(PredictConfig config, Owned<InputSource> source)
    : predict_(std::move(config)), source_(std::move(source)) {
  TP_CHECK(static_cast<bool>(source_), "FeedfreePredictor",
           "there is no data. Pass an input source.");
}

std::optional<std::vector<at::Tensor>> FeedfreePredictor::operator()() {
  const std::optional<DataPoint> batch = source_->next();
  if (!batch) return std::nullopt;
  return predict_(batch->components());
}

}  // namespace tensorpack
