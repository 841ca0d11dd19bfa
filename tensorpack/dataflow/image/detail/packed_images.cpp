// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/detail/packed_images.h"

#include <ATen/EmptyTensor.h>

#include <array>
#include <cstring>

#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {
namespace {

// The numbers of an image, in this order.
enum Field : size_t {
  kBytes,
  kNameBytes,
  kIsJpeg,
  kHeight,
  kWidth,
  kLeft,
  kTop,
  kAreaWidth,
  kAreaHeight,
  kMirror,
  kFields
};

using Numbers = std::array<int64_t, kFields>;

at::Tensor empty(int64_t size, at::ScalarType dtype) {
  return at::Tensor(at::detail::empty_cpu({size}, dtype));
}

}  // namespace

std::pair<at::Tensor, at::Tensor> pack(const PackedImage& image) {
  const auto bytes = static_cast<int64_t>(image.bytes.size());
  const auto name_bytes = static_cast<int64_t>(image.name.size());
  const imgaug::Rectangle& area = image.choice.area;
  const Numbers numbers = {bytes,
                           name_bytes,
                           int64_t{image.is_jpeg},
                           image.size.height,
                           image.size.width,
                           area.left,
                           area.top,
                           area.width,
                           area.height,
                           int64_t{image.choice.mirror}};
  at::Tensor all = empty(bytes + name_bytes, at::kByte);
  auto* to = static_cast<char*>(all.data_ptr());
  std::memcpy(to, image.bytes.data(), image.bytes.size());
  std::memcpy(to + bytes, image.name.data(), image.name.size());
  at::Tensor row = empty(kFields, at::kLong);
  std::memcpy(row.data_ptr(), numbers.data(), sizeof(numbers));
  return {std::move(all), std::move(row)};
}

std::vector<PackedImage> unpack(const at::Tensor& bytes, const at::Tensor& numbers) {
  TP_CHECK(bytes.scalar_type() == at::kByte && bytes.dim() == 1 &&
               numbers.scalar_type() == at::kLong && numbers.dim() == 2 &&
               numbers.size(1) == kFields && numbers.is_contiguous(),
           "DecodingInput",
           "the first components of a batch are {} [{}] and {} [{}], which is not what "
           "encoded_batch() makes. Put it at the end of the dataflow.",
           c10::toString(bytes.scalar_type()), fmt::join(bytes.sizes(), ", "),
           c10::toString(numbers.scalar_type()), fmt::join(numbers.sizes(), ", "));
  std::string_view left = bytes_view(bytes);
  const auto take = [&](int64_t count) {
    TP_CHECK(count >= 0 && static_cast<size_t>(count) <= left.size(), "DecodingInput",
             "a batch claims to have more bytes of images than there are. Check what lies between "
             "encoded_batch() and the input source.");
    const std::string_view taken = left.substr(0, count);
    left.remove_prefix(count);
    return taken;
  };
  const auto* row = static_cast<const int64_t*>(numbers.data_ptr());
  std::vector<PackedImage> images;
  for (int64_t i = 0; i < numbers.size(0); ++i, row += kFields) {
    PackedImage image{.is_jpeg = row[kIsJpeg] != 0,
                      .size = {.height = row[kHeight], .width = row[kWidth]},
                      .choice = {.area = {.left = row[kLeft],
                                          .top = row[kTop],
                                          .width = row[kAreaWidth],
                                          .height = row[kAreaHeight]},
                                 .mirror = row[kMirror] != 0}};
    image.bytes = take(row[kBytes]);
    image.name = take(row[kNameBytes]);
    check_area(image.choice.area, image.size, image.name);
    images.push_back(image);
  }
  return images;
}

}  // namespace tensorpack::detail
