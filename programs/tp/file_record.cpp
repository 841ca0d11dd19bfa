// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/file_record.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/hash.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// File systems note times by a clock that ticks every few milliseconds.
constexpr std::chrono::milliseconds kTick{10};

// A size that no file has.
constexpr std::uint64_t kChanged = ~std::uint64_t{0};

std::int64_t count_of(std::chrono::file_clock::time_point time) {
  return time.time_since_epoch().count();
}

}  // namespace

FileRecord::FileRecord(std::string command, const std::vector<fs::path>& files,
                       std::chrono::file_clock::time_point started)
    : command_(std::move(command)) {
  for (const fs::path& file : files) {
    Input input{.path = fs::absolute(file).string(), .size = kChanged};
    std::error_code gone;
    const auto time = fs::last_write_time(file, gone);
    if (!gone && time < started - kTick) {
      const std::string bytes = read_file(file);
      input.size = bytes.size();
      input.time = count_of(time);
      input.hash = xxh64(bytes);
    }
    inputs_.push_back(input);
  }
}

FileRecord FileRecord::outdated(const std::vector<fs::path>& files) {
  FileRecord record;
  for (const fs::path& file : files)
    record.inputs_.push_back({.path = fs::absolute(file).string()});
  return record;
}

FileRecord FileRecord::read(const fs::path& path) {
  FileRecord record;
  try {
    const json text = json::parse(read_file(path));
    for (const json& input : text.at("files")) {
      record.inputs_.push_back(
          {.path = input.at(0), .size = input.at(1), .time = input.at(2), .hash = input.at(3)});
    }
    record.command_ = text.at("command");
  } catch (const std::exception&) {
    return {};
  }
  return record;
}

void FileRecord::write(const fs::path& path) const {
  json files = json::array();
  for (const Input& input : inputs_) {
    files.push_back({input.path, input.size, input.time, input.hash});
  }
  write_file_atomically(path, json{{"command", command_}, {"files", files}}.dump());
}

bool FileRecord::is_same(const Input& input) {
  std::error_code error;
  if (fs::file_size(input.path, error) != input.size || error) return false;
  const auto time = fs::last_write_time(input.path, error);
  if (error) return false;
  return count_of(time) == input.time || xxh64(read_file(input.path)) == input.hash;
}

bool FileRecord::is_current(const std::string& command) const {
  if (command.empty() || command != command_) return false;
  for (const Input& input : inputs_) {
    if (!is_same(input)) return false;
  }
  return true;
}

std::vector<fs::path> FileRecord::files() const {
  std::vector<fs::path> paths;
  for (const Input& input : inputs_) paths.emplace_back(input.path);
  return paths;
}

std::vector<fs::path> read_dependencies(const fs::path& path) {
  const std::string text = read_file(path);
  std::vector<fs::path> files;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) files.emplace_back(std::exchange(word, {}));
  };
  const size_t targets_end = text.find(": ");
  for (size_t i = targets_end == std::string::npos ? text.size() : targets_end + 2; i < text.size();
       ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\\' && (next == ' ' || next == '#' || next == '\\')) {
      word += text[++i];
    } else if (text[i] == '$' && next == '$') {
      word += text[++i];
    } else if (text[i] == ' ' || text[i] == '\n' || (text[i] == '\\' && next == '\n')) {
      end_word();
    } else {
      word += text[i];
    }
  }
  end_word();
  return files;
}

}  // namespace tensorpack
