// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/detail/image_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack::detail {

ImageFile::ImageFile(const DataPoint& point, bool reads_files, const char* stage) {
  TP_CHECK(!point.empty(), stage, "the datapoint is empty. Component 0 is the image.");
  bytes_ = bytes_view(point[0]);
  if (!reads_files) return;
  const std::filesystem::path path(bytes_);
  name_ = fmt::format("'{}'", path.string());
  read_ = read_file(path);
  bytes_ = read_;
}

}  // namespace tensorpack::detail
