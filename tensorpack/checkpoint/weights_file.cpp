// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/weights_file.h"

#include <nlohmann/json.hpp>
#include <set>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/checkpoint/npz.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

bool is_index(const fs::path& path) { return path.string().ends_with(".safetensors.index.json"); }

NamedTensors weights_of(Checkpoint checkpoint) {
  for (const std::string& name : checkpoint.training_only) checkpoint.variables.erase(name);
  return std::move(checkpoint.variables);
}

// The files that an index names. They lie beside it: a name that leads elsewhere is refused.
std::set<std::string> read_index(const fs::path& path) {
  const auto index = nlohmann::json::parse(read_file(path), nullptr, false);
  const bool has_map = index.is_object() && index.contains("weight_map") &&
                       index["weight_map"].is_object() && !index["weight_map"].empty();
  TP_CHECK(has_map, "read_weights", "'{}' has no 'weight_map' with the names of files.",
           path.string());
  std::set<std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const bool is_beside = file.is_string() && fs::path(file).filename() == fs::path(file) &&
                           fs::path(file).extension() == ".safetensors";
    TP_CHECK(is_beside, "read_weights",
             "'{}' says that '{}' lies in {}, which is not a safetensors file beside it.",
             path.string(), name, file.dump());
    files.insert(file);
  }
  return files;
}

NamedTensors read_divided(const fs::path& path) {
  NamedTensors all;
  for (const std::string& file : read_index(path)) {
    for (auto& [name, tensor] : read_safetensors(path.parent_path() / file).tensors) {
      TP_CHECK(all.emplace(name, tensor).second, "read_weights",
               "'{}' is in two of the files that '{}' names.", name, path.string());
    }
  }
  return all;
}

}  // namespace

bool is_weights_file(const fs::path& path) {
  if (path.extension() == ".npz" || is_index(path)) return true;
  return path.extension() == ".safetensors" && fs::is_regular_file(path) &&
         !is_checkpoint(read_safetensors_header(path).metadata);
}

NamedTensors read_weights(const fs::path& path) {
  if (path.extension() == ".npz") return read_npz(path);
  if (is_index(path)) return read_divided(path);
  if (is_weights_file(path)) return read_safetensors(path).tensors;
  return weights_of(load_checkpoint(path));
}

void write_weights(const fs::path& path, const NamedTensors& tensors) {
  if (path.extension() == ".npz") return write_npz(path, tensors);
  TP_CHECK(path.extension() == ".safetensors", "write_weights",
           "'{}' is neither a .safetensors nor an .npz file. Choose one of these.", path.string());
  // What Python's libraries look for to know whose tensors these are.
  write_safetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace tensorpack
