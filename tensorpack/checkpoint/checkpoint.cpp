// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/checkpoint.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kFormat = 1;
constexpr const char* kFormatKey = "tensorpack_checkpoint";
constexpr const char* kVersionKey = "tensorpack_version";
constexpr const char* kStepKey = "global_step";
constexpr const char* kEpochKey = "epoch_num";
constexpr std::string_view kExtraPrefix = "extra/";

int64_t read_integer(const fs::path& path, const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  TP_CHECK(found != metadata.end(), "load_checkpoint",
           "'{}' is not a checkpoint of this library: its metadata has no '{}'. To read only its "
           "tensors, call read_safetensors().",
           path.string(), key);
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  TP_CHECK(error == std::errc() && end == text.data() + text.size(), "load_checkpoint",
           "'{}' in the metadata of '{}' is '{}' instead of an integer. The file is damaged; use "
           "another one.",
           key, path.string(), text);
  return value;
}

std::vector<std::string> checkpoint_files_in(const fs::path& dir) {
  std::vector<std::string> names;
  std::error_code no_directory;
  for (const auto& file : fs::directory_iterator(dir, no_directory)) {
    if (file.path().extension() == kCheckpointExtension) names.push_back(file.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

fs::path latest_in(const fs::path& dir) {
  const auto latest = CheckpointDirectory(dir).latest();
  TP_CHECK(latest, "load_checkpoint",
           "there is no checkpoint in the directory '{}'. Check the path, or train first.",
           dir.string());
  return *latest;
}

// The file that `path` means.
fs::path resolve(const fs::path& path) {
  if (fs::is_directory(path)) return latest_in(path);
  const fs::path dir = path.has_parent_path() ? path.parent_path() : ".";
  if (fs::exists(path)) return path.filename() == kCheckpointIndex ? latest_in(dir) : path;
  fs::path with_extension = path;
  with_extension += kCheckpointExtension;
  TP_CHECK(fs::exists(with_extension), "load_checkpoint",
           "there is no checkpoint '{}' in the directory '{}'. {}", path.filename().string(),
           dir.string(), did_you_mean(path.filename().string(), checkpoint_files_in(dir)));
  return with_extension;
}

}  // namespace

void save_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
  Metadata metadata = {
      {kFormatKey, std::to_string(kFormat)},
      {kVersionKey, TENSORPACK_VERSION},
      {kStepKey, std::to_string(checkpoint.global_step)},
      {kEpochKey, std::to_string(checkpoint.epoch_num)},
  };
  for (const auto& [name, text] : checkpoint.extra) {
    metadata[std::string(kExtraPrefix) + name] = text;
  }
  write_safetensors(path, checkpoint.variables, metadata);
}

Checkpoint load_checkpoint(const fs::path& path) {
  const fs::path file_path = resolve(path);
  SafetensorsFile file = read_safetensors(file_path);
  const int64_t format = read_integer(file_path, file.metadata, kFormatKey);
  TP_CHECK(format <= kFormat, "load_checkpoint",
           "'{}' has checkpoint format {}, this library reads up to {}. Update the library.",
           file_path.string(), format, kFormat);
  Checkpoint checkpoint{
      .variables = std::move(file.tensors),
      .global_step = read_integer(file_path, file.metadata, kStepKey),
      .epoch_num = read_integer(file_path, file.metadata, kEpochKey),
  };
  for (auto& [key, text] : file.metadata) {
    if (key.starts_with(kExtraPrefix)) {
      checkpoint.extra[key.substr(kExtraPrefix.size())] = std::move(text);
    }
  }
  return checkpoint;
}

}  // namespace tensorpack
