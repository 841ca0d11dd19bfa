// SPDX-License-Identifier: Apache-2.0
// Batches whose images are mixed with each other: functions for map() and parallel_map() behind
// batch().
//
//   flow | batch(128) | map(Mixup({.alpha = 0.2, .classes = 1000}))
#pragma once

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/rng.h"

namespace tensorpack {

using MixFunction = std::function<DataPoint(DataPoint, Rng&)>;

struct MixupOptions {
  /// How much is mixed: the share of an image's own is drawn from Beta(alpha, alpha).
  double alpha = 0.2;
  /// If positive, labels become shares [n, classes], of float32. Otherwise they stay, and two
  /// components come behind the others: the labels of the images mixed in, and the share of an
  /// image's own, a scalar of float32.
  int64_t classes = 0;
  /// How many of the batches are mixed.
  double probability = 1;
  /// Where the images [n, ...], of uint8 or float32, and the labels [n], integers, are.
  size_t images = 0;
  size_t labels = 1;
};

/// Mixup (Zhang et al., 2018): each image becomes the weighted mean of itself and another one of
/// the batch. Types are kept.
MixFunction Mixup(MixupOptions options = {});

struct CutMixOptions {
  double alpha = 1;
  int64_t classes = 0;
  double probability = 1;
  size_t images = 0;  ///< [n, height, width, channels], or [n, channels, height, width]
  size_t labels = 1;
  bool channels_last = true;
};

/// CutMix (Yun et al., 2019): a rectangle of each image comes from another one of the batch, at the
/// same place. Labels are as with Mixup(), by the area.
MixFunction CutMix(CutMixOptions options = {});

}  // namespace tensorpack
