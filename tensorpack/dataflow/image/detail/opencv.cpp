// SPDX-License-Identifier: Apache-2.0
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>
#include <optional>

#include "tensorpack/dataflow/image/detail/pixels.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {
namespace {

int64_t big_endian_32(std::string_view bytes) {
  int64_t value = 0;
  for (const char byte : bytes.substr(0, 4)) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

// PNGs pack even absurd sizes well: they are looked at before OpenCV takes memory.
std::optional<imgaug::ImageSize> size_of_png(std::string_view bytes) {
  constexpr size_t kWidthAt = 16;
  if (!bytes.starts_with("\x89PNG") || bytes.size() < kWidthAt + 8) return std::nullopt;
  return imgaug::ImageSize{.height = big_endian_32(bytes.substr(kWidthAt + 4)),
                           .width = big_endian_32(bytes.substr(kWidthAt))};
}

// OpenCV decodes images whole.
class OpenCvReader final : public ImageReader {
 public:
  explicit OpenCvReader(const EncodedImage& image) : image_(image) {
    if (const auto size = size_of_png(image.bytes)) check_image_size(image, *size);
    decode();
    check_image_size(image, size());
  }

  imgaug::ImageSize size() const override {
    return {.height = decoded_.rows, .width = decoded_.cols};
  }

  imgaug::Rectangle begin(const imgaug::Rectangle& area, int& reduction,
                          PixelFormat format) override {
    reduction = 1;
    area_ = area;
    format_ = format;
    return area;
  }

  void read(uint8_t* to, int64_t stride) override {
    const auto rect = [](const imgaug::Rectangle& area) {
      return cv::Rect(static_cast<int>(area.left), static_cast<int>(area.top),
                      static_cast<int>(area.width), static_cast<int>(area.height));
    };
    const cv::Mat part = decoded_(rect(area_));
    const int type = CV_8UC(static_cast<int>(bytes_per_pixel(format_)));
    cv::Mat out(part.rows, part.cols, type, to, stride);
    switch (format_) {
      case PixelFormat::kGray:
        cv::cvtColor(part, out, cv::COLOR_BGR2GRAY);
        break;
      case PixelFormat::kRgb:
        cv::cvtColor(part, out, cv::COLOR_BGR2RGB);
        break;
      case PixelFormat::kBgr:
        part.copyTo(out);
        break;
      case PixelFormat::kRgbx:
        cv::cvtColor(part, out, cv::COLOR_BGR2RGBA);
        break;
      case PixelFormat::kBgrx:
        cv::cvtColor(part, out, cv::COLOR_BGR2BGRA);
        break;
    }
  }

 private:
  void decode() {
    std::string reason = "no decoder of OpenCV's makes an image of it";
    try {
      const cv::Mat bytes(1, static_cast<int>(image_.bytes.size()), CV_8U,
                          const_cast<char*>(image_.bytes.data()));  // OpenCV only reads it
      decoded_ = cv::imdecode(bytes, cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION);
    } catch (const cv::Exception& error) {
      reason = error.err;
    }
    if (!decoded_.empty()) return;
    std::string begins;
    for (const char byte : image_.bytes.substr(0, 4)) {
      begins += fmt::format(" {:02x}", static_cast<uint8_t>(byte));
    }
    throw make_error("decode_image",
                     "{}, of {} bytes that begin with{}, is no image, damaged or cut off: {}. "
                     "Check the file, or leave such images out with on_error = OnError::kSkip.",
                     image_.name, image_.bytes.size(), begins, reason);
  }

  EncodedImage image_;
  cv::Mat decoded_;
  imgaug::Rectangle area_;
  PixelFormat format_ = PixelFormat::kRgb;
};

}  // namespace

std::unique_ptr<ImageReader> open_with_opencv(const EncodedImage& image) {
  return std::make_unique<OpenCvReader>(image);
}

}  // namespace tensorpack::detail
