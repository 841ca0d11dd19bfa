// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/image_folder.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

bool is_image(const fs::path& path) {
  static const std::set<std::string> kExtensions = {".jpg", ".jpeg", ".png",  ".bmp", ".ppm",
                                                    ".pgm", ".webp", ".tiff", ".tif"};
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return kExtensions.contains(extension);
}

}  // namespace

std::vector<std::string> folder_classes(const fs::path& dir) {
  TP_CHECK(fs::is_directory(dir), "ImageFolder", "'{}' is not a folder. Check the path.",
           dir.string());
  std::vector<std::string> classes;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.is_directory()) classes.push_back(entry.path().filename().string());
  }
  TP_CHECK(!classes.empty(), "ImageFolder",
           "'{}' has no folders in it. Put the images of each class into a folder of its own.",
           dir.string());
  std::sort(classes.begin(), classes.end());
  return classes;
}

std::vector<LabeledFile> list_image_folder(const fs::path& dir) {
  std::vector<LabeledFile> files;
  int64_t label = 0;
  for (const std::string& name : folder_classes(dir)) {
    const size_t before = files.size();
    for (const auto& entry : fs::recursive_directory_iterator(
             dir / name, fs::directory_options::follow_directory_symlink)) {
      if (entry.is_regular_file() && is_image(entry.path())) files.push_back({entry.path(), label});
    }
    TP_CHECK(files.size() > before, "ImageFolder",
             "there are no images in '{}'. Fill the folder, or remove it.", (dir / name).string());
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end(),
              [](const LabeledFile& a, const LabeledFile& b) { return a.path < b.path; });
    ++label;
  }
  return files;
}

}  // namespace tensorpack
