// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/caffe_blob.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstring>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/protobuf_reader.h"

namespace tensorpack {
namespace {

// The field of BlobProto with the numbers; fields 1 to 4 are num, channels, height and width.
constexpr int64_t kData = 5;

}  // namespace

at::Tensor read_caffe_blob(const std::filesystem::path& path) {
  constexpr const char* kWhere = "read_caffe_blob";
  const std::string file = read_file(path);
  std::vector<int64_t> shape = {1, 1, 1, 1};
  std::string data;
  ProtoReader reader(file);
  while (const auto field = reader.next()) {
    if (field->number >= 1 && field->number <= 4) {
      shape[field->number - 1] = static_cast<int64_t>(field->integer);
    } else if (field->number == kData) {
      data += field->bytes;
    }
  }
  TP_CHECK(reader.is_whole() && !data.empty(), kWhere,
           "'{}' is no BlobProto of Caffe, or is cut off. Get the file again.", path.string());
  int64_t count = 1;
  for (const int64_t size : shape) {
    count = size > 0 && size <= std::ssize(data) / count ? count * size : 0;
    if (count == 0) break;
  }
  TP_CHECK(count * static_cast<int64_t>(sizeof(float)) == std::ssize(data), kWhere,
           "'{}' has shape [{}], but {} bytes of numbers. Get the file again.", path.string(),
           fmt::join(shape, ", "), data.size());
  at::Tensor blob = at::empty(shape, at::kFloat);
  std::memcpy(blob.data_ptr(), data.data(), data.size());
  return blob;
}

}  // namespace tensorpack
