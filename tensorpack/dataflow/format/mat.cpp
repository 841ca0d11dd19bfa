// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/mat.h"

#ifdef TENSORPACK_HAS_ZLIB
#include <zlib.h>
#endif

#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

constexpr size_t kHeaderBytes = 128;
// More dimensions than any real file has.
constexpr size_t kMaxMatDimensions = 16;

// Types of the format's elements.
constexpr uint32_t kInt32 = 5;
constexpr uint32_t kInt8 = 1;
constexpr uint32_t kMatrix = 14;
constexpr uint32_t kCompressed = 15;

std::optional<at::ScalarType> scalar_type(uint32_t element) {
  switch (element) {
    case 1:
      return at::kChar;
    case 2:
      return at::kByte;
    case 3:
      return at::kShort;
    case 4:
      return at::kInt;  // uint16, which libtorch does not have
    case 5:
      return at::kInt;
    case 6:
      return at::kLong;  // uint32
    case 7:
      return at::kFloat;
    case 9:
      return at::kDouble;
    case 12:
      return at::kLong;
    default:
      return std::nullopt;
  }
}

// The type of an array, by its class. Its elements may be written as smaller ones.
std::optional<at::ScalarType> array_type(uint32_t array_class) {
  switch (array_class) {
    case 6:
      return at::kDouble;
    case 7:
      return at::kFloat;
    case 8:
      return at::kChar;
    case 9:
      return at::kByte;
    case 10:
      return at::kShort;
    case 11:
    case 12:
      return at::kInt;
    case 13:
    case 14:
      return at::kLong;
    default:
      return std::nullopt;  // cells, structures, texts, sparse ones
  }
}

struct Element {
  uint32_t type = 0;
  std::string_view data;
};

class MatReader {
 public:
  explicit MatReader(const std::filesystem::path& path) : path_(path), file_(read_file(path)) {}

  NamedTensors read() {
    check(file_.size() >= kHeaderBytes, 0, "it is shorter than a header");
    check(file_.substr(126, 2) == "IM", 126,
          "it is no MATLAB 5 file of little-endian numbers (one of version 7.3 is HDF5)");
    std::string_view rest = std::string_view(file_).substr(kHeaderBytes);
    while (!rest.empty()) {
      offset_ = file_.size() - rest.size();
      const Element element = take(rest, /*is_top=*/true);
      if (element.type == kMatrix) {
        read_matrix(element.data);
      } else if (element.type == kCompressed) {
        const std::string plain = inflate_all(element.data);
        std::string_view inner = plain;
        const Element matrix = take(inner, /*is_top=*/true);
        if (matrix.type == kMatrix) read_matrix(matrix.data);
      }
    }
    return std::move(arrays_);
  }

 private:
  // The offset is that of the array in the file: compressed ones have no other.
  template <typename... Args>
  void check(bool holds, size_t offset, fmt::format_string<Args...> what, Args&&... args) const {
    TP_CHECK(holds, "read_mat", "'{}' is damaged or cut off, at byte {}: {}. Get the file again.",
             path_.string(), offset, fmt::format(what, std::forward<Args>(args)...));
  }

  template <typename T>
  static T number_at(std::string_view bytes, size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
  }

  // Takes an element off the front: its type and size, then its data, padded to eight bytes. Up to
  // four bytes of data stand in the place of the size, and compressed elements have no padding.
  Element take(std::string_view& from, bool is_top = false) const {
    check(from.size() >= 8, offset_, "an element has no header");
    const auto first = number_at<uint32_t>(from, 0);
    if (first >> 16 != 0 && !is_top) {
      const uint32_t size = first >> 16;
      check(size <= 4, offset_, "a small element claims {} bytes", size);
      const Element small{.type = first & 0xffff, .data = from.substr(4, size)};
      from.remove_prefix(8);
      return small;
    }
    const auto size = number_at<uint32_t>(from, 4);
    check(size <= from.size() - 8, offset_, "an element claims {} bytes, and {} are left", size,
          from.size() - 8);
    const Element element{.type = first, .data = from.substr(8, size)};
    const size_t padded = first == kCompressed ? size : (size_t{size} + 7) / 8 * 8;
    from.remove_prefix(std::min(from.size(), 8 + padded));
    return element;
  }

  void read_matrix(std::string_view data) {
    const Element flags = take(data);
    check(flags.data.size() >= 8, offset_, "an array has no flags");
    const auto bits = number_at<uint32_t>(flags.data, 0);
    const Element dimensions = take(data);
    const Element name = take(data);
    check(dimensions.type == kInt32 && dimensions.data.size() % 4 == 0 &&
              dimensions.data.size() <= 4 * kMaxMatDimensions && name.type == kInt8,
          offset_, "an array has no shape or no name");
    const auto type = array_type(bits & 0xff);
    constexpr uint32_t kComplex = 0x800;
    if (!type || (bits & kComplex) != 0) return;
    std::vector<int64_t> shape;
    for (size_t i = 0; i < dimensions.data.size(); i += 4) {
      shape.push_back(number_at<int32_t>(dimensions.data, i));
      check(shape.back() >= 0, offset_, "an array claims a side of {}", shape.back());
    }
    arrays_[std::string(name.data)] = to_tensor(take(data), shape).to(*type);
  }

  at::Tensor to_tensor(const Element& values, std::vector<int64_t> shape) const {
    const auto type = scalar_type(values.type);
    check(type.has_value(), offset_, "an array has elements of the unknown type {}", values.type);
    const bool is_unsigned_16 = values.type == 4;
    const bool is_unsigned_32 = values.type == 6;
    const size_t bytes = is_unsigned_16 ? 2 : is_unsigned_32 ? 4 : c10::elementSize(*type);
    size_t left = values.data.size() / bytes;
    for (const int64_t side : shape) {
      check(side == 0 || left % static_cast<size_t>(side) == 0, offset_,
            "{} bytes are not what the shape takes", values.data.size());
      left = side == 0 ? 0 : left / static_cast<size_t>(side);
    }
    const bool is_empty = std::count(shape.begin(), shape.end(), 0) > 0;
    check(is_empty || (left == 1 && values.data.size() % bytes == 0), offset_,
          "{} bytes are not what the shape takes", values.data.size());

    std::reverse(shape.begin(), shape.end());  // the first index runs fastest
    at::Tensor tensor = at::empty(shape, *type);
    if (is_unsigned_16 || is_unsigned_32) {
      widen(values.data, bytes, tensor);
    } else if (!is_empty) {
      std::memcpy(tensor.data_ptr(), values.data.data(), values.data.size());
    }
    std::vector<int64_t> reversed(shape.size());
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    return tensor.permute(reversed);
  }

  static void widen(std::string_view from, size_t bytes, at::Tensor& to) {
    for (int64_t i = 0; i < to.numel(); ++i) {
      if (bytes == 2) {
        to.data_ptr<int32_t>()[i] = number_at<uint16_t>(from, 2 * i);
      } else {
        to.data_ptr<int64_t>()[i] = number_at<uint32_t>(from, 4 * i);
      }
    }
  }

#ifdef TENSORPACK_HAS_ZLIB
  std::string inflate_all(std::string_view packed) const {
    z_stream stream = {};
    TP_ASSERT(inflateInit(&stream) == Z_OK);
    const std::unique_ptr<z_stream, decltype(&inflateEnd)> ender(&stream, inflateEnd);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());
    constexpr size_t kStep = 1 << 20;
    std::string piece(kStep, '\0');
    std::string plain;
    int code = Z_OK;
    while (code == Z_OK) {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = kStep;
      code = inflate(&stream, Z_NO_FLUSH);
      plain.append(piece, 0, kStep - stream.avail_out);
      if (code == Z_OK && stream.avail_in == 0 && stream.avail_out > 0) break;  // cut off
    }
    check(code == Z_STREAM_END, offset_, "a compressed array does not decompress");
    return plain;
  }
#else
  std::string inflate_all(std::string_view) const {
    throw make_error("read_mat",
                     "'{}' is compressed, and the library was built without zlib. Install it (on "
                     "Debian: zlib1g-dev) and build again.",
                     path_.string());
  }
#endif

  std::filesystem::path path_;
  std::string file_;
  size_t offset_ = 0;  // of the array that is being read
  NamedTensors arrays_;
};

}  // namespace

NamedTensors read_mat(const std::filesystem::path& path) { return MatReader(path).read(); }

}  // namespace tensorpack
