// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/decoding_input.h"

#include "tensorpack/input_source/detail/batch_decoder.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

std::unique_ptr<detail::BatchDecoder> make_decoder(const ImageBatchOptions& options,
                                                   c10::DeviceType device) {
  detail::check_options(options, "DecodingInput");
  if (device == c10::kCPU) return detail::make_cpu_decoder(options);
  TP_CHECK(device == c10::kCUDA, "DecodingInput",
           "images cannot be decoded on {}. Choose kCUDA or kCPU.", c10::DeviceTypeName(device));
  return detail::make_cuda_decoder(options);
}

}  // namespace

DecodingInput::DecodingInput(Owned<InputSource> source, ImageBatchOptions options,
                             c10::DeviceType device)
    : ProxyInputSource(std::move(source)), decoder_(make_decoder(options, device)) {}

DecodingInput::DecodingInput(DecodingInput&&) noexcept = default;
DecodingInput::~DecodingInput() = default;

std::optional<DataPoint> DecodingInput::next() {
  std::optional<DataPoint> batch = source().next();
  if (!batch) return std::nullopt;
  TP_CHECK(batch->size() >= 2, "DecodingInput",
           "a batch of {} has {}, and the first two are to be those of encoded_batch(). "
           "Put it at the end of the dataflow.",
           name(), counted(std::ssize(*batch), "component"));
  at::Tensor images = decoder_->decode(detail::unpack((*batch)[0], (*batch)[1]));
  batch->erase(batch->begin());
  batch->front() = std::move(images);
  return batch;
}

}  // namespace tensorpack
