// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/jpeg.h"

#include <fmt/format.h>
#include <torch/cuda.h>

#include <filesystem>

#include "tensorpack/dataflow/image/encoded_batch.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/input_source/decoding_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::bench {
namespace {

constexpr int64_t kImagesAtATime = 256;
constexpr int kMostAhead = 6;  // batches

StagingInput fed_to_device(Owned<InputSource> source) {
  return StagingInput(std::move(source), {.devices = {at::kCUDA}});
}

Timed batches_of(InputSource& source) {
  return [&source](int64_t steps) {
    // What was made during the other side's turn does not count.
    for (int i = 0; i < kMostAhead; ++i) source.next();
    const Timer timer;
    for (int64_t i = 0; i < steps; ++i) source.next();
    torch::cuda::synchronize();
    return timer.seconds();
  };
}

// One side works at a time: threads that work ahead would take the other's cores.
Figure nvjpeg_vs_cpu(const Stopwatch& watch) {
  if (!env("TENSORPACK_BENCH_JPEGS")) throw Skip("TENSORPACK_BENCH_JPEGS names no folder");
  const ImageBatchOptions options = jpeg_options(224, /*channels_last=*/true);
  StagingInput ours = fed_to_device(DecodingInput(
      QueueInput(jpeg_files(1000) | encoded_batch(kImagesAtATime, options), {.capacity = 1}),
      options));
  StagingInput peer = fed_to_device(
      QueueInput(jpeg_files(1000) | image_batch(kImagesAtATime, options), {.capacity = 1}));
  Figure figure = watch.compare({.ours = batches_of(ours),
                                 .peer = batches_of(peer),
                                 .peer_name = "image_batch on the CPU",
                                 .repetitions = 3,
                                 .min_seconds = 1});
  figure.note = fmt::format("{:.0f} images/s against {:.0f}", kImagesAtATime / *figure.ours * 1e6,
                            kImagesAtATime / *figure.peer * 1e6);
  return figure;
}

}  // namespace

DataFlowPtr jpeg_files(int64_t classes) {
  std::vector<LabeledFile> files;
  for (const auto& entry : std::filesystem::directory_iterator(*env("TENSORPACK_BENCH_JPEGS"))) {
    files.push_back({entry.path(), std::ssize(files) % classes});
  }
  return LabeledFiles(std::move(files), {.shuffle = true}) | repeat();
}

ImageBatchOptions jpeg_options(int64_t size, bool channels_last) {
  return {.size = {.height = size, .width = size},
          .mirror = 0.5,
          .reads_files = true,
          .dtype = at::kByte,
          .channels_last = channels_last,
          .threads = env_int("TENSORPACK_BENCH_THREADS").value_or(0)};
}

void add_jpeg_benchmarks(Suite& suite) { suite.add("gpu/nvjpeg_vs_cpu", nvjpeg_vs_cpu); }

}  // namespace tensorpack::bench
