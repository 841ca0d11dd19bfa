// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/detail/batch_decoder.h"

#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {
namespace {

class CpuDecoder final : public BatchDecoder {
 public:
  explicit CpuDecoder(const ImageBatchOptions& options)
      : filler_(options), max_pixels_(options.max_pixels) {}

  at::Tensor decode(const std::vector<PackedImage>& images) override {
    at::Tensor batch = filler_.empty_batch(static_cast<int64_t>(images.size()));
    for (size_t i = 0; i < images.size(); ++i) {
      at::Tensor row = batch.select(0, static_cast<int64_t>(i));
      const PackedImage& image = images[i];
      if (image.is_jpeg) {
        const auto reader =
            open_image({.bytes = image.bytes, .name = image.name, .max_pixels = max_pixels_});
        filler_.fill(*reader, image.choice, row);
      } else {
        filler_.fill(image.bytes, row);
      }
    }
    return batch;
  }

 private:
  ImageFiller filler_;
  int64_t max_pixels_;
};

}  // namespace

std::unique_ptr<BatchDecoder> make_cpu_decoder(const ImageBatchOptions& options) {
  return std::make_unique<CpuDecoder>(options);
}

}  // namespace tensorpack::detail
