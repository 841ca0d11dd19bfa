// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/checkpoint.h"

#include <fmt/format.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/checkpoint/detail/tensor_checksum.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormatKey = "tensorpack_checkpoint";
constexpr const char* kVersionKey = "tensorpack_version";
constexpr const char* kStepKey = "global_step";
constexpr const char* kEpochKey = "epoch_num";
constexpr const char* kTrainingOnlyKey = "training_only";
constexpr const char* kFingerprintKey = "fingerprint";
constexpr const char* kLibtorchKey = "libtorch_version";
constexpr const char* kTensorChecksumsKey = "xxh64_tensors";
constexpr const char* kMetadataChecksumKey = "xxh64_metadata";
constexpr std::string_view kExtraPrefix = "extra/";
// More epochs and steps than anyone makes, and few enough to add to.
constexpr int64_t kMaxCount = int64_t{1} << 53;

int64_t read_integer(const fs::path& path, const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  TP_CHECK(found != metadata.end(), "load_checkpoint",
           "'{}' is not a checkpoint of this library: its metadata has no '{}'. To read only its "
           "tensors, call read_safetensors().",
           path.string(), key);
  const auto value = parse_integer(found->second);
  TP_CHECK(value && *value >= 0 && *value <= kMaxCount, "load_checkpoint",
           "'{}' in the metadata of '{}' is '{}' instead of an integer in 0..2^53. The file is "
           "damaged; use another one.",
           key, path.string(), found->second);
  return *value;
}

std::string checksum_text(uint64_t checksum) { return fmt::format("{:016x}", checksum); }

std::string checksum_of(const at::Tensor& tensor) {
  Xxh64 checksum = detail::begin_tensor_checksum(tensor.scalar_type(), tensor.sizes());
  checksum.add({static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()});
  return checksum_text(checksum.value());
}

// Of all other texts in the metadata.
std::string checksum_of(const Metadata& metadata) {
  uint64_t hash = 0;
  for (const auto& [key, text] : metadata) {
    if (key != kMetadataChecksumKey) hash = xxh64(text, xxh64(key, hash));
  }
  return checksum_text(hash);
}

Error damaged(const fs::path& path, const std::string& what) {
  return make_error("load_checkpoint",
                    "the checksum of {} in '{}' is wrong: the file is damaged. Use another one.",
                    what, path.string());
}

void verify_checksums(const fs::path& path, const SafetensorsFile& file) {
  const auto entry = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? "" : found->second;
  };
  if (entry(kMetadataChecksumKey) != checksum_of(file.metadata))
    throw damaged(path, "its metadata");
  const auto checksums = nlohmann::json::parse(entry(kTensorChecksumsKey), nullptr, false);
  for (const auto& [name, checksum] : file.checksums) {
    const bool is_right = checksums.is_object() && checksums.contains(name) &&
                          checksums[name] == checksum_text(checksum);
    if (!is_right) throw damaged(path, fmt::format("'{}'", name));
  }
}

std::set<std::string> read_training_only(const fs::path& path, const Metadata& metadata) {
  const auto found = metadata.find(kTrainingOnlyKey);
  if (found == metadata.end()) return {};
  try {
    return nlohmann::json::parse(found->second).get<std::set<std::string>>();
  } catch (const nlohmann::json::exception& error) {
    throw make_error(
        "load_checkpoint",
        "'{}' in the metadata of '{}' is not a list of names: {}. The file is damaged; "
        "use another one.",
        kTrainingOnlyKey, path.string(), error.what());
  }
}

Fingerprint read_fingerprint(const fs::path& path, const Metadata& metadata) {
  const auto found = metadata.find(kFingerprintKey);
  if (found == metadata.end()) return {};
  try {
    return parse_fingerprint(found->second);
  } catch (const Error& error) {
    throw make_error("load_checkpoint", "'{}' in the metadata of '{}': {} Use another file.",
                     kFingerprintKey, path.string(), error.what());
  }
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

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// The file that `path` means; nothing when it means the newest of a directory.
std::optional<fs::path> file_of(const fs::path& path) {
  if (fs::is_directory(path)) return std::nullopt;
  if (fs::exists(path)) {
    if (path.filename() == kCheckpointIndex) return std::nullopt;
    return path;
  }
  fs::path with_extension = path;
  with_extension += kCheckpointExtension;
  const fs::path dir = directory_of(path);
  TP_CHECK(fs::exists(with_extension), "load_checkpoint",
           "there is no checkpoint '{}' in the directory '{}'. {}", path.filename().string(),
           dir.string(), did_you_mean(path.filename().string(), checkpoint_files_in(dir)));
  return with_extension;
}

Checkpoint load_file(const fs::path& path) {
  SafetensorsFile file = read_safetensors(path, {.checksums = true});
  const int64_t format = read_integer(path, file.metadata, kFormatKey);
  TP_CHECK(format <= kCheckpointFormat, "load_checkpoint",
           "'{}' has checkpoint format {}, this library reads up to {}. Update the library.",
           path.string(), format, kCheckpointFormat);
  if (format >= 2 || file.metadata.contains(kMetadataChecksumKey)) verify_checksums(path, file);
  Checkpoint checkpoint{
      .variables = std::move(file.tensors),
      .training_only = read_training_only(path, file.metadata),
      .global_step = read_integer(path, file.metadata, kStepKey),
      .epoch_num = read_integer(path, file.metadata, kEpochKey),
      .fingerprint = read_fingerprint(path, file.metadata),
      .format = format,
  };
  for (auto& [key, text] : file.metadata) {
    if (key.starts_with(kExtraPrefix)) {
      checkpoint.extra[key.substr(kExtraPrefix.size())] = std::move(text);
    }
  }
  return checkpoint;
}

}  // namespace

bool is_checkpoint(const Metadata& metadata) { return metadata.contains(kFormatKey); }

void save_checkpoint(const fs::path& path, const Checkpoint& checkpoint) {
  Metadata metadata = {
      {kFormatKey, std::to_string(kCheckpointFormat)},
      {kVersionKey, TENSORPACK_VERSION},
      {kLibtorchKey, TORCH_VERSION},
      {kStepKey, std::to_string(checkpoint.global_step)},
      {kEpochKey, std::to_string(checkpoint.epoch_num)},
      {kTrainingOnlyKey, nlohmann::json(checkpoint.training_only).dump()},
  };
  for (const auto& [name, text] : checkpoint.extra) {
    metadata[std::string(kExtraPrefix) + name] = text;
  }
  if (!checkpoint.fingerprint.empty()) {
    metadata[kFingerprintKey] = to_text(checkpoint.fingerprint);
  }
  NamedTensors tensors;  // as they will be written
  nlohmann::json checksums = nlohmann::json::object();
  for (const auto& [name, tensor] : checkpoint.variables) {
    const bool is_plain = tensor.defined() && tensor.layout() == at::kStrided;
    tensors[name] =
        is_plain ? tensor.detach().resolve_conj().resolve_neg().cpu().contiguous() : tensor;
    if (is_plain) checksums[name] = checksum_of(tensors[name]);
  }
  metadata[kTensorChecksumsKey] = checksums.dump();
  metadata[kMetadataChecksumKey] = checksum_of(metadata);
  write_safetensors(path, tensors, metadata);
}

Checkpoint load_checkpoint(const fs::path& path) {
  const std::optional<fs::path> file_path = file_of(path);
  if (file_path) return load_file(*file_path);
  const fs::path dir = fs::is_directory(path) ? path : directory_of(path);
  auto newest = load_newest_checkpoint(dir);
  TP_CHECK(newest, "load_checkpoint",
           "there is no checkpoint in the directory '{}'. Check the path, or train first.",
           dir.string());
  return std::move(newest->checkpoint);
}

}  // namespace tensorpack
