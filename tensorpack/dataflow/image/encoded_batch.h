// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/image/image_batch.h"

namespace tensorpack {

/// As image_batch(), with the same options and the same random choices, but leaves the decoding to
/// a DecodingInput behind it, on a GPU.
///
///   const ImageBatchOptions images{.mirror = 0.5, .reads_files = true, .dtype = at::kByte};
///   DecodingInput(QueueInput(ILSVRC12Files(dir, "train") | encoded_batch(256, images)), images)
///
/// The first two components of its batches are the bytes of all images and, for each, what they are
/// and which part is wanted. Images that are no plain JPEGs (progressive, gray, CMYK, other
/// formats) are decoded by the threads here, and so are those that seem to be cut off: errors are
/// those of image_batch().
Stage encoded_batch(int64_t size, ImageBatchOptions options = {});

}  // namespace tensorpack
