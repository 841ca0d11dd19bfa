// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/detail/pixels.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

std::unique_ptr<ImageReader> open_with_opencv(const EncodedImage& image) {
  throw make_error(
      "decode_image",
      "{} needs OpenCV to be decoded, and the library was built without it. Install it "
      "(on Debian: libopencv-imgcodecs-dev) and build again.",
      image.name);
}

}  // namespace tensorpack::detail
