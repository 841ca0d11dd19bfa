// SPDX-License-Identifier: Apache-2.0
// ImageNet as the Large Scale Visual Recognition Challenge of 2012 had it: 1000 classes.
//
//   ILSVRC12Files("/data/imagenet", "train") | image_batch(256, {.mirror = 0.5, .reads_files =
//   true})
//
// Labels are those of Caffe, and come from its metadata (caffe_ilsvrc12.tar.gz), a folder with:
//   synsets.txt         n01440764                                 one line for each class
//   synset_words.txt    n01440764 tench, Tinca tinca
//   train.txt, val.txt  n01440764/n01440764_10026.JPEG 0          file and label
//   imagenet_mean.binaryproto                                     the mean of the training images
#pragma once

#include <string>
#include <string_view>

#include "tensorpack/dataflow/image/labeled_files.h"

namespace tensorpack {

/// How the files of a set lie in its folder.
enum class ILSVRCLayout : uint8_t {
  kGuess,     ///< kTrain if there are folders named after classes, otherwise kOriginal
  kOriginal,  ///< as distributed: train/n01440764/... and val/ILSVRC2012_val_00000001.JPEG
  kTrain,     ///< a folder for each class in every set: val/n01440764/...
};

class ILSVRCMeta {
 public:
  /// By default the metadata is in `$TENSORPACK_DATASET/ilsvrc_metadata`, or in
  /// tensorpack_data/ilsvrc_metadata in the home directory.
  explicit ILSVRCMeta(std::filesystem::path dir = {});

  /// Names of WordNet, n01440764, by label.
  std::vector<std::string> synsets() const;

  /// Words for people, by label.
  std::vector<std::string> synset_words() const;

  /// The files of "train" or "val", relative to the folder of the set.
  std::vector<LabeledFile> image_list(std::string_view name,
                                      ILSVRCLayout layout = ILSVRCLayout::kOriginal) const;

  /// The mean of the training images, resized to 256 x 256: float32 [256, 256, 3] in 0..255.
  at::Tensor per_pixel_mean(ImageColor color = ImageColor::kRgb) const;

 private:
  std::filesystem::path dir_;
};

struct ILSVRC12Options {
  std::filesystem::path meta_dir = {};  ///< see ILSVRCMeta
  ILSVRCLayout layout = ILSVRCLayout::kGuess;
  /// Whether each pass comes in a new random order; by default the training set does.
  std::optional<bool> shuffle = {};
  std::optional<uint64_t> seed = {};
  // For ILSVRC12, which decodes:
  ImageColor color = ImageColor::kRgb;
  OnError on_error = OnError::kThrow;
};

/// Yields {path: bytes, label}, see LabeledFiles. `dir` has the folders "train" and "val".
class ILSVRC12Files final : public LabeledFiles {
 public:
  ILSVRC12Files(const std::filesystem::path& dir, std::string_view name,
                const ILSVRC12Options& options = {});
};

/// Yields {image: uint8 [height, width, 3], label}, decoded one after the other: for training at
/// full speed use ILSVRC12Files and image_batch().
class ILSVRC12 final : public LabeledImages {
 public:
  ILSVRC12(const std::filesystem::path& dir, std::string_view name,
           const ILSVRC12Options& options = {});
};

struct TinyImageNetOptions {
  std::optional<bool> shuffle = {};  ///< by default the training set is
  std::optional<uint64_t> seed = {};
  ImageColor color = ImageColor::kRgb;
  OnError on_error = OnError::kThrow;
};

/// TinyImageNet: 200 classes, 64 x 64 pixels. Yields {image: uint8 [64, 64, 3], label: the place of
/// the class in wnids.txt}.
class TinyImageNet final : public LabeledImages {
 public:
  /// "train" or "val" of the folder, tiny-imagenet-200, as distributed.
  TinyImageNet(const std::filesystem::path& dir, std::string_view name,
               const TinyImageNetOptions& options = {});
};

}  // namespace tensorpack
