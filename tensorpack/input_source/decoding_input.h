// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include "tensorpack/dataflow/image/image_batch.h"
#include "tensorpack/input_source/proxy_input_source.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

namespace detail {
class BatchDecoder;
}

/// Decodes the batches of encoded_batch() on a GPU, with nvJPEG, and brings the images to their
/// size there. Gives what image_batch() gives with these options, as far as two decoders agree.
///
///   DecodingInput(QueueInput(files | encoded_batch(256, images)), images)
///
/// It works on the thread and the stream of the StagingInput that trainers put around it, beside
/// the step that is running. A batch that nvJPEG refuses is decoded on the CPU, which names the
/// image that is damaged, if one is. It refuses few: damage inside of what is coded, which the CPU
/// would find, may become pixels.
class DecodingInput final : public ProxyInputSource {
 public:
  /// `options` are those of the encoded_batch(). With kCPU as the device, one thread decodes on the
  /// CPU: for tests, and to run the same program without a GPU.
  ///
  /// Throws Error if nvJPEG is not there.
  DecodingInput(Owned<InputSource> source, ImageBatchOptions options,
                c10::DeviceType device = c10::kCUDA);
  DecodingInput(DecodingInput&&) noexcept;
  ~DecodingInput() override;

  std::optional<DataPoint> next() override;

 private:
  detail::Pimpl<detail::BatchDecoder> decoder_;
};

}  // namespace tensorpack
