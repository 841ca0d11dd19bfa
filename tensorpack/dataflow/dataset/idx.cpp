// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/idx.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "tensorpack/dataflow/detail/byte_source.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;
// More dimensions than any real file has: a larger number is a damaged header.
constexpr int kMaxDimensions = 8;

class IdxReader {
 public:
  explicit IdxReader(const std::filesystem::path& path) : path_(path), source_(path) {}

  at::Tensor read() {
    const std::vector<int64_t> shape = read_shape();
    const int64_t most = source_.most_bytes();
    int64_t count = 1;
    for (const int64_t size : shape) {
      TP_CHECK(size == 0 || count <= most / size, "read_idx",
               "'{}' claims the impossible shape [{}]. The file is damaged, get it again.",
               path_.string(), fmt::join(shape, ", "));
      count *= size;
    }
    at::Tensor data = at::empty(shape, at::kByte);
    const int64_t found = source_.read(data.data_ptr(), count);
    TP_CHECK(found == count, "read_idx",
             "'{}' is cut off: its header announces shape [{}], which takes {} bytes of data, but "
             "only {} could be read. Get the file again.",
             path_.string(), fmt::join(shape, ", "), count, found);
    uint8_t extra = 0;
    TP_CHECK(
        source_.read(&extra, 1) == 0, "read_idx",
        "'{}' goes on after the {} bytes of data that its shape [{}] takes. Get the file again.",
        path_.string(), count, fmt::join(shape, ", "));
    return data;
  }

 private:
  // The header: two zero bytes, the element type, the number of dimensions, then big-endian sizes.
  std::vector<int64_t> read_shape() {
    std::array<uint8_t, 4> magic = {};
    read_header(magic.data(), magic.size());
    TP_CHECK(
        magic[0] == 0 && magic[1] == 0 && magic[2] == kUnsignedByte && magic[3] > 0 &&
            magic[3] <= kMaxDimensions,
        "read_idx",
        "'{}' is not an IDX file of unsigned bytes: it should begin with 00 00 08 and the number "
        "of dimensions, and begins with {:02x}. Check that it is the right file.",
        path_.string(), fmt::join(magic, " "));
    std::vector<int64_t> shape(magic[3]);
    for (int64_t& size : shape) {
      std::array<uint8_t, 4> bytes = {};
      read_header(bytes.data(), bytes.size());
      size = int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
    }
    return shape;
  }

  void read_header(void* to, int64_t count) {
    TP_CHECK(source_.read(to, count) == count, "read_idx",
             "'{}' is cut off inside its header. Get the file again.", path_.string());
  }

  std::filesystem::path path_;
  detail::ByteSource source_;
};

}  // namespace

at::Tensor read_idx(const std::filesystem::path& path) { return IdxReader(path).read(); }

}  // namespace tensorpack
