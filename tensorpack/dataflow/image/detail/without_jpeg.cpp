// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/detail/pixels.h"

namespace tensorpack::detail {

std::unique_ptr<ImageReader> open_jpeg(const EncodedImage& image) {
  return open_with_opencv(image);
}

}  // namespace tensorpack::detail
