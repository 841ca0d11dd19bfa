// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/image/decode.h"
#include "tensorpack/dataflow/on_error.h"
#include "tensorpack/utils/rng.h"

namespace tensorpack {

/// Which part of an image is taken, from its size.
using ChooseCrop = std::function<imgaug::Rectangle(imgaug::ImageSize size, Rng& rng)>;

/// The parts for training: imgaug::random_area_crop().
ChooseCrop random_area(imgaug::AreaCropOptions options = {});

/// The parts for inference: the middle of an image, of the shape of the result, `share` times as
/// large as it could be. 224 / 256. is the usual one.
ChooseCrop central_area(imgaug::ImageSize shape, double share = 1);

struct ImageBatchOptions {
  imgaug::ImageSize size = {.height = 224, .width = 224};
  ChooseCrop crop = random_area();
  /// How likely an image is mirrored.
  double mirror = 0;
  ImageColor color = ImageColor::kRgb;  ///< kRgb or kBgr
  /// Whether component 0 is the name of a file, to be read by the threads, or the bytes of an
  /// image.
  bool reads_files = false;
  /// kFloat, (byte - mean) / std; or kByte, a quarter of the memory, for models that normalise.
  at::ScalarType dtype = at::kFloat;
  std::array<float, 3> mean = {0, 0, 0};  ///< for each channel in the order of `color`, of 0..255
  std::array<float, 3> std = {1, 1, 1};
  /// Whether batches [n, 3, height, width] lie in memory pixel by pixel.
  bool channels_last = false;
  /// Whether all pixels count when an image is made smaller, as with Pillow, or the nearest four.
  bool antialias = true;
  int64_t max_pixels = int64_t{1} << 27;
  int64_t threads = 0;   ///< 0: as many as cores that this process may use
  int64_t capacity = 2;  ///< batches in work or waiting to be taken
  bool remainder = false;
  OnError on_error = OnError::kThrow;
  std::optional<uint64_t> seed = {};
};

/// Makes batches of images: decodes the chosen part of component 0, brings it to one size, mirrors
/// it, makes numbers of it, and writes them straight into the batch. Other components are stacked.
///
///   ILSVRC12Files(dir, "train") | image_batch(256, {.mirror = 0.5, .reads_files = true})
///
/// Of a JPEG that is more than twice as large as needed, only a half, a quarter or an eighth of the
/// size is decoded.
Stage image_batch(int64_t size, ImageBatchOptions options = {});

}  // namespace tensorpack
