// SPDX-License-Identifier: Apache-2.0
// Images sorted into folders, one for each class: folder/cat/1.jpg, folder/dog/2.png.
#pragma once

#include <string>

#include "tensorpack/dataflow/image/labeled_files.h"

namespace tensorpack {

/// The names of the folders in `dir`, in alphabetical order: class i is the i-th. Throws Error if
/// there are none.
std::vector<std::string> folder_classes(const std::filesystem::path& dir);

/// The image files below each of the folders, in alphabetical order; other files are left out.
/// Throws Error if a class has none.
std::vector<LabeledFile> list_image_folder(const std::filesystem::path& dir);

/// Yields {image: uint8 [height, width, channels], label: the number of the class}.
class ImageFolder final : public LabeledImages {
 public:
  explicit ImageFolder(const std::filesystem::path& dir, ImageFileOptions options = {})
      : LabeledImages(list_image_folder(dir), options) {}
};

/// Yields {path: bytes, label}, see LabeledFiles.
class ImageFolderFiles final : public LabeledFiles {
 public:
  explicit ImageFolderFiles(const std::filesystem::path& dir, FileOrderOptions options = {})
      : LabeledFiles(list_image_folder(dir), options) {}
};

}  // namespace tensorpack
