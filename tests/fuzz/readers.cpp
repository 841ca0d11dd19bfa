// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/readers.h"

#include <ATen/core/ivalue.h>  // as in tensorpack.h
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/checkpoint/npz.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/export/detail/program_function.h"
#include "tensorpack/export/exported_program.h"
#include "tensorpack/export/program_file.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

struct Reader {
  std::string file_name = {};
  std::function<void(const fs::path&)> read = {};
};

// A checksum keeps what is behind it from being looked at: where the rest of a file is well, it is
// read a second time with the right one.
void read_checkpoint(const fs::path& path) {
  try {
    load_checkpoint(path);
  } catch (const Error&) {
  }
  constexpr const char* kChecksum = "xxh64_metadata";
  SafetensorsFile file = read_safetensors(path);
  uint64_t hash = 0;
  for (const auto& [key, text] : file.metadata) {
    if (key != kChecksum) hash = xxh64(text, xxh64(key, hash));
  }
  file.metadata[kChecksum] = fmt::format("{:016x}", hash);
  write_safetensors(path, file.tensors, file.metadata);
  load_checkpoint(path);
}

// Of two files that are there.
void read_index(const fs::path& path) {
  for (const char* name : {"model-1.safetensors", "model-2.safetensors"}) {
    std::ofstream(path.parent_path() / name);
  }
  for (const fs::path& found : CheckpointDirectory(path.parent_path()).newest_first()) {
    TP_ASSERT(found.parent_path() == path.parent_path());  // never outside of its directory
  }
}

// As a training does that goes on after step 2.
void continue_stats(const fs::path& path) {
  const LoopState loop{
      .epoch_num = 1, .global_step = 2, .steps_per_epoch = 2, .starting_epoch = 2, .max_epoch = 3};
  JSONWriter writer({.path = path});
  writer.before_train(loop);
  writer.process_scalar("cost", 1, loop);
  writer.trigger_epoch(loop);
  writer.after_train(loop);
  TP_ASSERT(JSONWriter::load_existing_json(path.parent_path()).has_value());
}

// Up to where it would be run: what an operator does with odd arguments is libtorch's.
void load_program(const fs::path& path) {
  const ExportedProgram program = read_program(path);
  try {
    detail::ProgramFunction(program, c10::kCPU);
  } catch (const detail::Malformed&) {
  }
}

// The text of a program, in a file whose checksums are right.
void read_program_text(const fs::path& path) {
  const std::string text = read_file(path);
  try {
    write_safetensors(path, {{"fc/W", at::ones({2, 3})}, {"fc/b", at::ones({2})}},
                      {{"format", "tensorpack program"},
                       {"program", text},
                       {"checksum", fmt::format("{:016x}", xxh64(text))}});
  } catch (const Error&) {
    return;  // no text
  }
  load_program(path);
}

const std::map<std::string, Reader, std::less<>>& readers() {
  static const std::map<std::string, Reader, std::less<>> all = {
      {"checkpoint", {"a.safetensors", read_checkpoint}},
      {"index", {kCheckpointIndex, read_index}},
      {"npy", {"a.npy", [](const fs::path& path) { read_npy(path); }}},
      {"npz", {"a.npz", [](const fs::path& path) { read_npz(path); }}},
      {"program", {"a.tpx", load_program}},
      {"program_text", {"a.tpx", read_program_text}},
      {"safetensors", {"a.safetensors", [](const fs::path& path) { read_safetensors(path); }}},
      {"stats", {"stats.json", continue_stats}},
  };
  return all;
}

void remove_contents(const fs::path& dir) {
  for (const auto& file : fs::directory_iterator(dir)) fs::remove_all(file);
}

}  // namespace

std::vector<std::string> reader_names() {
  std::vector<std::string> names;
  for (const auto& [name, reader] : readers()) names.push_back(name);
  return names;
}

void read_by(std::string_view name, std::string_view bytes) {
  static const TempDir dir;
  const Reader& reader = readers().find(name)->second;
  const fs::path path = dir / reader.file_name;
  std::ofstream(path, std::ios::binary) << bytes;
  try {
    reader.read(path);
  } catch (const Error&) {
  }
  remove_contents(dir.path());  // monitors move what they cannot read
}

}  // namespace tensorpack
