// SPDX-License-Identifier: Apache-2.0
// Packed images to batches on a GPU: nvJPEG decodes, a kernel takes the parts and brings them to
// their size.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>

#include "tensorpack/cuda/kernels/device_launcher.h"
#include "tensorpack/cuda/kernels/resample_images.h"
#include "tensorpack/cuda/nvjpeg.h"
#include "tensorpack/input_source/detail/batch_decoder.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/thread.h"
#include "tensorpack/utils/wait_for_device.h"

namespace tensorpack::cuda {
namespace {

using detail::PackedImage;
using Images = std::vector<PackedImage>;

constexpr const char* kWhere = "DecodingInput";
// Decoded pixels that are in memory at the same time: a batch of large photographs is decoded in
// several groups.
constexpr int64_t kMostBytes = int64_t{1} << 30;

// What nvJPEG keeps for the current device.
class NvJpegDecoder {
 public:
  NvJpegDecoder() {
    // Some devices have circuits for it, which leave the multiprocessors to the training.
    const bool wants_hardware = env("TENSORPACK_NVJPEG_HARDWARE").value_or("1") != "0";
    void* handle = nullptr;
    const bool uses_hardware =
        wants_hardware && nvjpeg().create(NvJpeg::kHardware, nullptr, nullptr, 0, &handle) == 0;
    if (!uses_hardware) {
      check(nvjpeg().create(NvJpeg::kGpuHybrid, nullptr, nullptr, 0, &handle), "begin");
    }
    handle_ = {handle, nvjpeg().destroy};
    make_state();
    int major = 0;
    int minor = 0;
    nvjpeg().property(0, &major);
    nvjpeg().property(1, &minor);
    logging::info("nvJPEG {}.{} decodes images, {}.", major, minor,
                  uses_hardware ? "with hardware of its own" : "on the multiprocessors");
  }

  // Whether what nvJPEG reads of the head of an image agrees with what memory was taken for.
  bool agrees_on_size(const PackedImage& image) const {
    int components = 0;
    int subsampling = 0;
    int widths[4] = {};
    int heights[4] = {};
    const auto* bytes = reinterpret_cast<const unsigned char*>(image.bytes.data());
    return nvjpeg().image_info(handle_.get(), bytes, image.bytes.size(), &components, &subsampling,
                               widths, heights) == 0 &&
           components == 3 && widths[0] == image.size.width && heights[0] == image.size.height;
  }

  // Has the images decoded to their destinations; false if nvJPEG refuses them.
  bool decode(const Images& images, std::vector<NvJpegImage> destinations, int format,
              void* stream) {
    if (images.empty()) return true;
    std::vector<const unsigned char*> bytes;
    std::vector<size_t> lengths;
    for (const PackedImage& image : images) {
      bytes.push_back(reinterpret_cast<const unsigned char*>(image.bytes.data()));
      lengths.push_back(image.bytes.size());
    }
    const auto size = static_cast<int>(images.size());
    if (size != size_) {
      const int threads = std::min(affinity_cores(), 8);
      check(nvjpeg().begin_batches(handle_.get(), state_.get(), size, threads, format),
            "begin a batch");
      size_ = size;
    }
    const int result = nvjpeg().decode_batch(handle_.get(), state_.get(), bytes.data(),
                                             lengths.data(), destinations.data(), stream);
    if (result == 0) return true;
    logging::warning_once("nvJPEG does not decode a batch ({}); the CPU does.",
                          nvjpeg_error(result));
    make_state();
    return false;
  }

 private:
  static void check(int result, const char* what) {
    TP_CHECK(result == 0, kWhere,
             "nvJPEG cannot {}: {}. Check that it fits the driver, or use image_batch().", what,
             nvjpeg_error(result));
  }

  void make_state() {
    size_ = 0;
    state_.reset();
    void* state = nullptr;
    check(nvjpeg().create_state(handle_.get(), &state), "make a state");
    state_ = {state, nvjpeg().destroy_state};
  }

  using Handle = std::unique_ptr<void, int (*)(void*)>;

  Handle handle_{nullptr, nullptr};
  Handle state_{nullptr, nullptr};
  int size_ = 0;  // of the batches that the state is ready for
};

class CudaDecoder final : public detail::BatchDecoder {
 public:
  explicit CudaDecoder(const ImageBatchOptions& options)
      : options_(options), filler_(options), on_cpu_(detail::make_cpu_decoder(options)) {
    nvjpeg();  // an error now is better than one later
  }

  at::Tensor decode(const Images& images) override {
    bind_thread_to_device();
    const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    const at::Tensor batch =
        filler_.empty_batch(static_cast<int64_t>(images.size()), stream.device());
    for (auto first = images.begin(); first != images.end();) {
      const auto last = end_of_group(first, images.end());
      const auto start = first - images.begin();
      at::Tensor rows = batch.narrow(0, start, last - first);
      const Images group(first, last);
      if (!decode_on_device(group, rows, stream)) rows.copy_(on_cpu_->decode(group));
      first = last;
    }
    // nvJPEG goes on reading the bytes, and its memory is that of the next batch.
    c10::Event done(c10::kCUDA);
    done.record(stream.unwrap());
    wait_for(done);
    return batch;
  }

 private:
  // Kernels of ours are launched through the driver, for which a thread has no device before its
  // first call that needs one. Memory that libtorch has at hand takes no such call.
  static void bind_thread_to_device() {
    thread_local const bool is_bound = cudaFree(nullptr) == cudaSuccess;
    TP_CHECK(is_bound, kWhere, "CUDA does not work on this thread. Check the driver.");
  }

  static int64_t pixel_bytes(const PackedImage& image) {
    constexpr int64_t kAlignment = 256;
    return (image.size.height * image.size.width * 3 + kAlignment - 1) / kAlignment * kAlignment;
  }

  static Images::const_iterator end_of_group(Images::const_iterator first,
                                             Images::const_iterator end) {
    int64_t bytes = pixel_bytes(*first);
    auto last = first + 1;
    while (last != end && bytes + pixel_bytes(*last) <= kMostBytes) bytes += pixel_bytes(*last++);
    return last;
  }

  bool decode_on_device(const Images& images, const at::Tensor& batch,
                        const c10::cuda::CUDAStream& stream) {
    const Launcher* launcher = device_launcher();
    TP_CHECK(launcher != nullptr, kWhere,
             "no kernel can be compiled here (see the log). Install NVRTC, or use image_batch().");
    auto& decoder = decoders_[stream.device_index()];
    if (!decoder) decoder = std::make_unique<NvJpegDecoder>();

    int64_t bytes = 0;
    for (const PackedImage& image : images) bytes += pixel_bytes(image);
    const at::Tensor pixels = at::empty({bytes}, batch.options().dtype(at::kByte));
    ResampleImages resampling{.pixels = pixels,
                              .scale = filler_.scale(),
                              .bias = filler_.bias(),
                              .antialias = options_.antialias};
    Images jpegs;
    std::vector<NvJpegImage> destinations;
    int64_t offset = 0;
    for (const PackedImage& image : images) {
      if (image.is_jpeg) {
        if (!decoder->agrees_on_size(image)) return false;
        jpegs.push_back(image);
        destinations.push_back({.channel = {pixels.data_ptr<uint8_t>() + offset},
                                .pitch = {static_cast<size_t>(image.size.width) * 3}});
      } else {
        copy_pixels(image, pixels.narrow(0, offset, static_cast<int64_t>(image.bytes.size())));
      }
      const imgaug::Rectangle& area = image.choice.area;
      resampling.images.push_back({.offset = offset,
                                   .width = image.size.width,
                                   .left = area.left,
                                   .top = area.top,
                                   .part_width = area.width,
                                   .part_height = area.height,
                                   .mirror = image.choice.mirror ? 1 : 0});
      offset += pixel_bytes(image);
    }
    const int format = options_.color == ImageColor::kBgr ? NvJpeg::kBgr : NvJpeg::kRgb;
    if (!decoder->decode(jpegs, std::move(destinations), format, stream.stream())) return false;
    resample_images(resampling, batch, *launcher);
    return true;
  }

  static void copy_pixels(const PackedImage& image, const at::Tensor& to) {
    to.copy_(at::from_blob(const_cast<char*>(image.bytes.data()), to.sizes(), at::kByte),
             /*non_blocking=*/true);
  }

  ImageBatchOptions options_;
  detail::ImageFiller filler_;
  std::unique_ptr<detail::BatchDecoder> on_cpu_;
  std::map<c10::DeviceIndex, std::unique_ptr<NvJpegDecoder>> decoders_;
};

}  // namespace
}  // namespace tensorpack::cuda

namespace tensorpack::detail {

std::unique_ptr<BatchDecoder> make_cuda_decoder(const ImageBatchOptions& options) {
  return std::make_unique<cuda::CudaDecoder>(options);
}

}  // namespace tensorpack::detail
