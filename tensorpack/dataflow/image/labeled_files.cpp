// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/labeled_files.h"

#include <ATen/EmptyTensor.h>

#include "tensorpack/dataflow/detail/error_counter.h"
#include "tensorpack/dataflow/image/detail/resample.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Pixels of four bytes are what resample() takes: one channel becomes three equal ones.
at::Tensor resized(const at::Tensor& image, imgaug::ImageSize size) {
  const int64_t height = image.size(0);
  const int64_t width = image.size(1);
  const int64_t channels = image.size(2);
  std::vector<uint8_t> pixels(height * width * 4);
  const auto* from = static_cast<const uint8_t*>(image.data_ptr());
  for (int64_t i = 0; i < height * width; ++i) {
    for (int64_t c = 0; c < 3; ++c) {
      pixels[4 * i + c] = from[channels * i + std::min(c, channels - 1)];
    }
  }
  at::Tensor three(at::detail::empty_cpu({size.height, size.width, 3}, at::kByte));
  detail::resample<uint8_t>(
      {.data = pixels.data(), .stride = 4 * width, .width = width, .height = height},
      {.width = static_cast<double>(width), .height = static_cast<double>(height)},
      {.data = static_cast<uint8_t*>(three.data_ptr()),
       .width = size.width,
       .height = size.height,
       .channel_stride = 1,
       .row_stride = 3 * size.width,
       .pixel_stride = 3});
  return channels == 3 ? three : three.narrow(2, 0, 1).contiguous();
}

std::vector<std::filesystem::path> paths_of(const std::vector<LabeledFile>& files) {
  std::vector<std::filesystem::path> paths;
  paths.reserve(files.size());
  for (const LabeledFile& file : files) paths.push_back(file.path);
  return paths;
}

}  // namespace

LabeledFiles::LabeledFiles(std::vector<LabeledFile> files, FileOrderOptions options)
    : files_(std::move(files)), order_(std::ssize(files_), options.shuffle, options.seed) {
  TP_CHECK(!files_.empty(), "LabeledFiles", "there are no files. Pass at least one.");
}

std::optional<DataPoint> LabeledFiles::next() {
  const auto index = order_.next();
  if (!index) return std::nullopt;
  const LabeledFile& file = files_[*index];
  return DataPoint{bytes(file.path.string()), number(file.label)};
}

struct ImageFromFile::Impl {
  Impl(std::vector<std::filesystem::path> paths, ImageFileOptions options)
      : files(std::move(paths)),
        options(options),
        order(std::ssize(files), options.shuffle, options.seed) {
    TP_CHECK(!files.empty(), "ImageFromFile", "there are no files. Pass at least one.");
    if (options.resize) {
      TP_CHECK(options.resize->height > 0 && options.resize->width > 0, "ImageFromFile",
               "images cannot be resized to {} x {} pixels. Choose a positive size.",
               options.resize->height, options.resize->width);
    }
  }

  at::Tensor read(int64_t index) const {
    const at::Tensor image = read_image(
        files[index],
        {.color = options.color, .at_least = options.resize, .max_pixels = options.max_pixels});
    return options.resize ? resized(image, *options.resize) : image;
  }

  // The next image that can be read, and its number.
  std::optional<std::pair<at::Tensor, int64_t>> next() {
    while (const auto index = order.next()) {
      if (options.on_error == OnError::kThrow) return std::pair(read(*index), *index);
      try {
        return std::pair(read(*index), *index);
      } catch (...) {
        errors.count(fmt::format("'{}'", files[*index].string()));
      }
    }
    return std::nullopt;
  }

  std::vector<std::filesystem::path> files;
  ImageFileOptions options;
  detail::PassOrder order;
  detail::ErrorCounter errors{"ImageFromFile"};
};

ImageFromFile::ImageFromFile(std::vector<std::filesystem::path> files, ImageFileOptions options)
    : impl_(std::make_unique<Impl>(std::move(files), options)) {}
ImageFromFile::ImageFromFile(ImageFromFile&&) noexcept = default;
ImageFromFile::~ImageFromFile() = default;

void ImageFromFile::start(int64_t pass) { impl_->order.start(pass); }

std::optional<DataPoint> ImageFromFile::next() {
  auto image = impl_->next();
  if (!image) return std::nullopt;
  return DataPoint{std::move(image->first)};
}

int64_t ImageFromFile::skip(int64_t count) {
  // Which ones would have been left out is not known without reading them.
  if (impl_->options.on_error == OnError::kSkip) return DataFlow::skip(count);
  return impl_->order.skip(count);
}

std::optional<int64_t> ImageFromFile::size() const {
  if (impl_->options.on_error == OnError::kSkip) return std::nullopt;
  return impl_->order.size();
}

int64_t ImageFromFile::skipped_files() const { return impl_->errors.total(); }

LabeledImages::LabeledImages(std::vector<LabeledFile> files, ImageFileOptions options)
    : files_(std::move(files)), images_(paths_of(files_), options) {}

std::optional<DataPoint> LabeledImages::next() {
  auto image = images_.impl_->next();
  if (!image) return std::nullopt;
  return DataPoint{std::move(image->first), number(files_[image->second].label)};
}

}  // namespace tensorpack
