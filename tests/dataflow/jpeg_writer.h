// SPDX-License-Identifier: Apache-2.0
// JPEGs of every kind, written by libjpeg for the tests.
#pragma once

#include <torch/types.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
// Needs the types of cstdio.
#include <jpeglib.h>

namespace tensorpack::test {

struct JpegKind {
  int quality = 92;
  int horizontal = 2;  ///< how many pixels share their colour
  int vertical = 2;
  bool progressive = false;
};

/// Smooth shapes with some noise: something a JPEG is made for.
inline torch::Tensor picture(int64_t height, int64_t width, int64_t channels = 3) {
  torch::Tensor image = torch::empty({height, width, channels}, torch::kByte);
  auto* to = image.data_ptr<uint8_t>();
  uint32_t noise = 1;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < channels; ++c) {
        noise = noise * 1664525 + 1013904223;
        const double wave = std::sin(0.07 * static_cast<double>(x * (c + 1))) *
                            std::cos(0.05 * static_cast<double>(y + 30 * c));
        *to++ = static_cast<uint8_t>(std::lround(120 + 100 * wave + (noise >> 28)));
      }
    }
  }
  return image;
}

/// uint8 [height, width, channels]: 1 for gray, 3 for RGB, 4 for CMYK as Adobe writes it.
inline std::string encode_jpeg(const torch::Tensor& image, JpegKind kind = {}) {
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors = {};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's type
  jpeg_mem_dest(&info, &memory, &size);
  info.image_height = image.size(0);
  info.image_width = image.size(1);
  info.input_components = static_cast<int>(image.size(2));
  info.in_color_space = image.size(2) == 1   ? JCS_GRAYSCALE
                        : image.size(2) == 3 ? JCS_RGB
                                             : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (image.size(2) == 4) jpeg_set_colorspace(&info, JCS_YCCK);
  info.comp_info[0].h_samp_factor = image.size(2) == 3 ? kind.horizontal : 1;
  info.comp_info[0].v_samp_factor = image.size(2) == 3 ? kind.vertical : 1;
  if (kind.progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  const torch::Tensor plain = image.contiguous();
  while (info.next_scanline < info.image_height) {
    JSAMPROW row =
        plain.data_ptr<uint8_t>() + int64_t{info.next_scanline} * plain.size(1) * plain.size(2);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return bytes;
}

}  // namespace tensorpack::test
