// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <vector>
// These need the types of cstdio.
#include <jerror.h>
#include <jpeglib.h>

#include "tensorpack/dataflow/image/detail/pixels.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {
namespace {

// More passes over a progressive image than any encoder makes: small files can ask for hours of
// work.
constexpr int kMaxScans = 500;

J_COLOR_SPACE color_space(PixelFormat format) {
  switch (format) {
    case PixelFormat::kGray:
      return JCS_GRAYSCALE;
    case PixelFormat::kRgb:
      return JCS_EXT_RGB;
    case PixelFormat::kBgr:
      return JCS_EXT_BGR;
    case PixelFormat::kRgbx:
      return JCS_EXT_RGBX;
    case PixelFormat::kBgrx:
      return JCS_EXT_BGRX;
  }
  return JCS_EXT_RGB;
}

// libjpeg goes on after these with whatever pixels it has.
bool means_damage(int warning) {
  return warning == JWRN_JPEG_EOF || warning == JWRN_HIT_MARKER || warning == JWRN_HUFF_BAD_CODE ||
         warning == JWRN_MUST_RESYNC;
}

class JpegReader final : public ImageReader {
 public:
  explicit JpegReader(const EncodedImage& image) : image_(image) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) { of(info).leave(); };
    errors_.emit_message = [](j_common_ptr info, int level) {
      if (level < 0 && means_damage(info->err->msg_code)) of(info).leave();
    };
    progress_.progress_monitor = [](j_common_ptr info) {
      auto& self = of(info);
      self.has_too_many_scans_ = self.info_.input_scan_number > kMaxScans;
      if (self.has_too_many_scans_) self.leave();
    };
    try {
      guarded([&] {
        jpeg_create_decompress(&info_);
        info_.progress = &progress_;
        jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(image_.bytes.data()),
                     image_.bytes.size());
        jpeg_read_header(&info_, TRUE);
      });
      check_image_size(image_, size());
    } catch (...) {
      jpeg_destroy_decompress(&info_);
      throw;
    }
  }
  ~JpegReader() override { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  imgaug::ImageSize size() const override {
    return {.height = info_.image_height, .width = info_.image_width};
  }

  imgaug::Rectangle begin(const imgaug::Rectangle& area, int& reduction,
                          PixelFormat format) override {
    format_ = format;
    is_cmyk_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = is_cmyk_ ? JCS_CMYK : color_space(format);
    info_.scale_num = 1;
    info_.scale_denom = reduction;
    part_ = reduced(area, reduction, size());
    guarded([&] { start(); });
    return part_;
  }

  void read(uint8_t* to, int64_t stride) override {
    if (is_cmyk_) cmyk_row_.resize(part_.width * 4);
    guarded([&] {
      for (int64_t y = 0; y < part_.height; ++y) {
        JSAMPROW row = is_cmyk_ ? cmyk_row_.data() : to + y * stride;
        jpeg_read_scanlines(&info_, &row, 1);
        if (is_cmyk_) convert_cmyk(to + y * stride);
      }
    });
  }

 private:
  static JpegReader& of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }

  [[noreturn]] void leave() { std::longjmp(jump_, 1); }

  // Makes calls of libjpeg, and an exception of its errors. As they leave by longjmp, `calls` must
  // not have objects that need to be destroyed.
  template <typename Calls>
  void guarded(const Calls& calls) {
    if (setjmp(jump_) != 0) throw_failure();
    calls();
  }

  [[noreturn]] void throw_failure() {
    std::array<char, JMSG_LENGTH_MAX> reason = {};
    if (has_too_many_scans_) {
      std::snprintf(reason.data(), reason.size(), "it has more than %d scans", kMaxScans);
    } else {
      errors_.format_message(reinterpret_cast<j_common_ptr>(&info_), reason.data());
    }
    throw make_error("decode_image",
                     "{} is damaged or cut off, at byte {} of {}: {}. Get the file again, or leave "
                     "such images out with on_error = OnError::kSkip.",
                     image_.name, offset(), image_.bytes.size(), reason.data());
  }

  size_t offset() const {
    const bool at_end = errors_.msg_code == JWRN_JPEG_EOF || !info_.src;
    return at_end ? image_.bytes.size() : image_.bytes.size() - info_.src->bytes_in_buffer;
  }

  // One more column on each side: otherwise chroma at the edges would be made without its
  // neighbours, and differ from that of the whole image.
  void start() {
    jpeg_start_decompress(&info_);
    const int64_t right = std::min<int64_t>(part_.left + part_.width + 1, info_.output_width);
    JDIMENSION x = part_.left > 0 ? part_.left - 1 : 0;
    JDIMENSION width = right - x;
    if (width < info_.output_width) jpeg_crop_scanline(&info_, &x, &width);
    if (part_.top > 0) jpeg_skip_scanlines(&info_, part_.top);
    part_.left = x;
    part_.width = width;
  }

  // Adobe's programs write how much ink is missing, others how much there is.
  void convert_cmyk(uint8_t* to) const {
    const int64_t step = bytes_per_pixel(format_);
    const int flip = info_.saw_Adobe_marker ? 0 : 255;
    for (int64_t x = 0; x < part_.width; ++x, to += step) {
      const uint8_t* ink = cmyk_row_.data() + 4 * x;
      const int black = ink[3] ^ flip;
      const auto light = [&](int i) { return ((ink[i] ^ flip) * black + 127) / 255; };
      if (format_ == PixelFormat::kGray) {
        to[0] = static_cast<uint8_t>((299 * light(0) + 587 * light(1) + 114 * light(2)) / 1000);
        continue;
      }
      const int red = is_blue_first(format_) ? 2 : 0;
      for (int i = 0; i < 3; ++i) to[i] = static_cast<uint8_t>(light(red == 0 ? i : 2 - i));
      if (step == 4) to[3] = 255;
    }
  }

  EncodedImage image_;
  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_ = {};
  bool has_too_many_scans_ = false;
  PixelFormat format_ = PixelFormat::kRgb;
  imgaug::Rectangle part_;
  bool is_cmyk_ = false;
  std::vector<uint8_t> cmyk_row_;
};

}  // namespace

std::unique_ptr<ImageReader> open_jpeg(const EncodedImage& image) {
  return std::make_unique<JpegReader>(image);
}

}  // namespace tensorpack::detail
