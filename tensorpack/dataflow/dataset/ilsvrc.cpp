// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/ilsvrc.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "tensorpack/dataflow/format/caffe_blob.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const char* where, const fs::path& path) {
  std::ifstream file(path);
  TP_CHECK(file, where,
           "cannot open '{}'. It is part of the data set's metadata: say where that is, or put it "
           "there.",
           path.string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  TP_CHECK(!lines.empty(), where, "'{}' is empty. Get the file again.", path.string());
  return lines;
}

void check_set_is_known(const char* where, std::string_view name) {
  TP_CHECK(name == "train" || name == "val", where, "there is no set '{}'. {}", name,
           did_you_mean(name, {"train", "val"}));
}

ILSVRCLayout guess_layout(const fs::path& dir) {
  for (const auto& entry : fs::directory_iterator(dir)) {
    const bool is_class = entry.is_directory() && entry.path().filename().string()[0] == 'n';
    return is_class ? ILSVRCLayout::kTrain : ILSVRCLayout::kOriginal;
  }
  throw make_error("ILSVRC12", "'{}' is empty. Put the images of the set there.", dir.string());
}

std::vector<LabeledFile> files_of(const fs::path& dir, std::string_view name,
                                  const ILSVRC12Options& options) {
  check_set_is_known("ILSVRC12", name);
  const fs::path folder = dir / name;
  TP_CHECK(fs::is_directory(folder), "ILSVRC12",
           "there is no folder '{}'. Pass the folder that has 'train' and 'val' in it.",
           folder.string());
  const ILSVRCLayout layout =
      options.layout == ILSVRCLayout::kGuess ? guess_layout(folder) : options.layout;
  std::vector<LabeledFile> files = ILSVRCMeta(options.meta_dir).image_list(name, layout);
  for (LabeledFile& file : files) file.path = folder / file.path;
  // One look is enough to see a wrong layout now, not after an hour of training.
  TP_CHECK(fs::exists(files.front().path), "ILSVRC12",
           "the list of the set names '{}', which is not there. Check the folder, or set "
           "{{.layout = ...}}.",
           files.front().path.string());
  return files;
}

std::map<std::string, int64_t> numbered(const std::vector<std::string>& names) {
  std::map<std::string, int64_t> numbers;
  for (const std::string& name : names) numbers.emplace(name, std::ssize(numbers));
  return numbers;
}

std::vector<LabeledFile> tiny_files(const fs::path& dir, std::string_view name) {
  check_set_is_known("TinyImageNet", name);
  const std::vector<std::string> classes = lines_of("TinyImageNet", dir / "wnids.txt");
  const auto labels = numbered(classes);
  std::vector<LabeledFile> files;
  if (name == "train") {
    for (const std::string& wnid : classes) {
      const fs::path images = dir / "train" / wnid / "images";
      TP_CHECK(fs::is_directory(images), "TinyImageNet", "there is no folder '{}'. Check the path.",
               images.string());
      for (const auto& entry : fs::directory_iterator(images)) {
        files.push_back({entry.path(), labels.at(wnid)});
      }
    }
    std::sort(files.begin(), files.end(),
              [](const LabeledFile& a, const LabeledFile& b) { return a.path < b.path; });
    return files;
  }
  const fs::path list = dir / "val" / "val_annotations.txt";
  for (const std::string& line : lines_of("TinyImageNet", list)) {
    std::istringstream words(line);
    std::string file;
    std::string wnid;
    words >> file >> wnid;
    TP_CHECK(labels.contains(wnid), "TinyImageNet",
             "the line '{}' of '{}' names no class of wnids.txt. Get the file again.", line,
             list.string());
    files.push_back({dir / "val" / "images" / file, labels.at(wnid)});
  }
  return files;
}

template <typename Options>
ImageFileOptions image_options(std::string_view name, const Options& options) {
  return {.color = options.color,
          .shuffle = options.shuffle.value_or(name == "train"),
          .seed = options.seed,
          .on_error = options.on_error};
}

}  // namespace

ILSVRCMeta::ILSVRCMeta(fs::path dir)
    : dir_(dir.empty() ? dataset_path("ilsvrc_metadata") : std::move(dir)) {
  TP_CHECK(fs::is_directory(dir_), "ILSVRCMeta",
           "there is no folder '{}' with the metadata of ILSVRC12. Unpack caffe_ilsvrc12.tar.gz, "
           "and say where it is with {{.meta_dir = \"...\"}} or the environment variable "
           "TENSORPACK_DATASET.",
           dir_.string());
}

std::vector<std::string> ILSVRCMeta::synsets() const {
  return lines_of("ILSVRCMeta", dir_ / "synsets.txt");
}

std::vector<std::string> ILSVRCMeta::synset_words() const {
  std::vector<std::string> words = lines_of("ILSVRCMeta", dir_ / "synset_words.txt");
  for (std::string& line : words) line.erase(0, line.find(' ') + 1);
  return words;
}

std::vector<LabeledFile> ILSVRCMeta::image_list(std::string_view name, ILSVRCLayout layout) const {
  check_set_is_known("ILSVRCMeta", name);
  const fs::path path = dir_ / (std::string(name) + ".txt");
  const std::vector<std::string> classes = synsets();
  const bool add_folder = layout == ILSVRCLayout::kTrain && name == "val";
  std::vector<LabeledFile> files;
  for (const std::string& line : lines_of("ILSVRCMeta", path)) {
    const size_t space = line.rfind(' ');
    const auto label =
        space == std::string::npos ? std::nullopt : parse_integer(line.substr(space + 1));
    TP_CHECK(label && *label >= 0 && *label < std::ssize(classes), "ILSVRCMeta",
             "line {} of '{}' is '{}', not a file and a label in 0..{}. Get the file again.",
             files.size() + 1, path.string(), line, classes.size() - 1);
    fs::path file = line.substr(0, space);
    files.push_back({add_folder ? classes[*label] / file : std::move(file), *label});
  }
  return files;
}

at::Tensor ILSVRCMeta::per_pixel_mean(ImageColor color) const {
  constexpr const char* kWhere = "ILSVRCMeta";
  TP_CHECK(color != ImageColor::kGray, kWhere, "the mean has three colours. Ask for kRgb or kBgr.");
  const fs::path path = dir_ / "imagenet_mean.binaryproto";
  const at::Tensor blob = read_caffe_blob(path);
  TP_CHECK(blob.dim() == 4 && blob.size(0) == 1 && blob.size(1) == 3, kWhere,
           "'{}' has shape [{}], not [1, 3, height, width]. Get the file again.", path.string(),
           fmt::join(blob.sizes(), ", "));
  // Caffe has blue first, and a channel after the other.
  const at::Tensor mean = color == ImageColor::kBgr ? blob[0] : blob[0].flip({0});
  return mean.permute({1, 2, 0}).contiguous();
}

ILSVRC12Files::ILSVRC12Files(const fs::path& dir, std::string_view name,
                             const ILSVRC12Options& options)
    : LabeledFiles(files_of(dir, name, options),
                   {.shuffle = options.shuffle.value_or(name == "train"), .seed = options.seed}) {}

ILSVRC12::ILSVRC12(const fs::path& dir, std::string_view name, const ILSVRC12Options& options)
    : LabeledImages(files_of(dir, name, options), image_options(name, options)) {}

TinyImageNet::TinyImageNet(const fs::path& dir, std::string_view name,
                           const TinyImageNetOptions& options)
    : LabeledImages(tiny_files(dir, name), image_options(name, options)) {}

}  // namespace tensorpack
