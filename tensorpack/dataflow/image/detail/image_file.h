// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// The encoded image of component 0 of a datapoint, which must outlive this: the bytes in it, or
/// those of the file it names.
class ImageFile {
 public:
  ImageFile(const DataPoint& point, bool reads_files, const char* stage);
  ImageFile(const ImageFile&) = delete;
  ImageFile& operator=(const ImageFile&) = delete;

  std::string_view bytes() const { return bytes_; }
  /// For errors.
  const std::string& name() const { return name_; }

 private:
  std::string read_;
  std::string_view bytes_;
  std::string name_ = "the image";
};

}  // namespace tensorpack::detail
