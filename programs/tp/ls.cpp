// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/ls.h"

#include <fmt/chrono.h>

#include <filesystem>
#include <memory>

#include "programs/tp/command.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDamaged = "damaged";

std::string saved_at(const fs::path& path) {
  const auto time = std::chrono::time_point_cast<std::chrono::seconds>(
      std::chrono::file_clock::to_sys(fs::last_write_time(path)));
  return fmt::format("{:%F %T}", fmt::localtime(std::chrono::system_clock::to_time_t(time)));
}

std::string text_of(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "?" : found->second;
}

// Reads all of a file. Bare weights, which any library may have written, have no checksums.
std::string verdict_on(const fs::path& path, bool has_checksums) {
  try {
    if (has_checksums) {
      load_checkpoint(path);
    } else {
      read_safetensors(path);
    }
    return has_checksums ? "whole" : "weights without checksums";
  } catch (const Error&) {
    return kDamaged;
  }
}

std::vector<std::string> row_of(const fs::path& path, bool is_latest, bool verify) {
  std::vector<std::string> row = {
      "?", "?", "?", humanize_bytes(fs::file_size(path)), saved_at(path), path.filename().string()};
  std::string note = is_latest ? "latest" : "";
  try {
    const auto header = read_safetensors_header(path);
    row[0] = text_of(header.metadata, "global_step");
    row[1] = text_of(header.metadata, "epoch_num");
    row[2] = std::to_string(header.entries.size());
    if (verify) {
      const std::string verdict = verdict_on(path, is_checkpoint(header.metadata));
      note = is_latest && verdict != kDamaged ? "latest, " + verdict : verdict;
    }
  } catch (const Error&) {
    note = kDamaged;
  }
  row.push_back(note);
  return row;
}

int list(const fs::path& dir, bool verify) {
  TP_CHECK(
      fs::is_directory(dir), "tp ls",
      "'{}' is no directory. Name the one a training saved to; `tp show` tells what is in a file.",
      dir.string());
  const CheckpointDirectory directory(dir);
  std::vector<std::vector<std::string>> rows = {
      {">step", ">epoch", ">tensors", ">size", "saved", "file", ""}};
  bool is_damaged = false;
  for (const fs::path& path : directory.all()) {
    rows.push_back(row_of(path, path == directory.latest(), verify));
    is_damaged |= rows.back().back() == kDamaged;
  }
  TP_CHECK(rows.size() > 1, "tp ls",
           "there is no checkpoint in '{}'. Name the directory a training saved to, such as "
           "train_log/mine.",
           dir.string());
  print_table(rows);
  return is_damaged ? 1 : 0;
}

}  // namespace

void add_ls(CLI::App& app, int& status) {
  struct Words {
    std::string dir = ".";
    bool verify = false;
  };
  const auto words = std::make_shared<Words>();
  CLI::App* command = app.add_subcommand("ls", "List the checkpoints in a directory.");
  command->add_option("directory", words->dir, "Where a training saved; here if left out");
  command->add_flag("--verify", words->verify, "Read them all and compare their checksums");
  command->footer("Example:\n  tp ls train_log/fashion_mnist --verify");
  command->callback(reporting_errors(status, [words] { return list(words->dir, words->verify); }));
}

}  // namespace tensorpack
