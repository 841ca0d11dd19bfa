// SPDX-License-Identifier: Apache-2.0
// Image files, with labels or without, one datapoint each.
#pragma once

#include <filesystem>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/detail/pass_order.h"
#include "tensorpack/dataflow/image/decode.h"
#include "tensorpack/dataflow/on_error.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

struct LabeledFile {
  std::filesystem::path path;
  int64_t label = 0;
};

struct FileOrderOptions {
  /// Whether each pass comes in a new random order.
  bool shuffle = false;
  std::optional<uint64_t> seed = {};
};

/// Yields {path: bytes, label: int64 scalar}: for stages such as image_batch(), whose threads read
/// the files.
class LabeledFiles : public DataFlow {
 public:
  explicit LabeledFiles(std::vector<LabeledFile> files, FileOrderOptions options = {});

  void start(int64_t pass) final { order_.start(pass); }
  std::optional<DataPoint> next() final;
  int64_t skip(int64_t count) final { return order_.skip(count); }
  std::optional<int64_t> size() const final { return order_.size(); }

  const std::vector<LabeledFile>& files() const { return files_; }

 private:
  std::vector<LabeledFile> files_;
  detail::PassOrder order_;
};

struct ImageFileOptions {
  ImageColor color = ImageColor::kRgb;
  /// If set, images are brought to this size.
  std::optional<imgaug::ImageSize> resize = {};
  bool shuffle = false;
  std::optional<uint64_t> seed = {};
  /// What happens with files that cannot be decoded. If they are skipped, the size is not known.
  OnError on_error = OnError::kThrow;
  int64_t max_pixels = int64_t{1} << 27;
};

/// Yields {image: uint8 [height, width, channels]} for each of some files.
class ImageFromFile : public DataFlow {
 public:
  explicit ImageFromFile(std::vector<std::filesystem::path> files, ImageFileOptions options = {});
  ImageFromFile(ImageFromFile&&) noexcept;
  ~ImageFromFile() override;

  void start(int64_t pass) final;
  std::optional<DataPoint> next() final;
  int64_t skip(int64_t count) final;
  std::optional<int64_t> size() const final;

  /// How many files were left out so far.
  int64_t skipped_files() const;

 private:
  friend class LabeledImages;
  struct Impl;
  detail::Pimpl<Impl> impl_;
};

/// Yields {image: uint8 [height, width, channels], label: int64 scalar}.
class LabeledImages : public DataFlow {
 public:
  explicit LabeledImages(std::vector<LabeledFile> files, ImageFileOptions options = {});

  void start(int64_t pass) final { images_.start(pass); }
  std::optional<DataPoint> next() final;
  int64_t skip(int64_t count) final { return images_.skip(count); }
  std::optional<int64_t> size() const final { return images_.size(); }

  const std::vector<LabeledFile>& files() const { return files_; }

  /// How many files were left out so far.
  int64_t skipped_files() const { return images_.skipped_files(); }

 private:
  std::vector<LabeledFile> files_;
  ImageFromFile images_;
};

}  // namespace tensorpack
