// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/new_project.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "programs/tp/project_files.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTpNew = "tp new";

void check_name(const std::string& name) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const bool is_plain = !name.empty() && name.find_first_not_of(kPlain) == std::string::npos;
  TP_CHECK(is_plain && name.front() != '-', kTpNew,
           "'{}' is not a name for a project. Use letters, digits, _ and -.", name);
}

/// Where CMake finds the library: the build tree or the prefix that this program is in.
std::string find_library() {
  std::error_code unknown;
  const fs::path here = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  const fs::path build = here.parent_path().parent_path();
  const bool is_build_tree = fs::exists(build / "TensorpackConfig.cmake", unknown);
  return (is_build_tree ? build : here.parent_path()).string();
}

std::string fill_in(std::string_view text, std::string_view word, const std::string& value) {
  std::string filled(text);
  for (size_t at = 0; (at = filled.find(word, at)) != std::string::npos; at += value.size()) {
    filled.replace(at, word.size(), value);
  }
  return filled;
}

/// The last part of a path, which may end in a slash or be a dot.
std::string name_of(const fs::path& directory) {
  const fs::path whole = fs::absolute(directory).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

void make_project(const fs::path& directory) {
  TP_CHECK(!directory.empty(), kTpNew, "the name is empty. Give the project one.");
  const std::string name = name_of(directory);
  check_name(name);
  TP_CHECK(!fs::exists(directory) || (fs::is_directory(directory) && fs::is_empty(directory)),
           kTpNew, "'{}' is there, and is not an empty directory. Choose another name.",
           directory.string());
  std::error_code error;
  fs::create_directories(directory, error);
  TP_CHECK(!error, kTpNew, "'{}' cannot be made: {}. Choose another place.", directory.string(),
           error.message());
  const std::string place = find_library();
  for (const ProjectFile& file : project_files()) {
    write_file_atomically(directory / file.name,
                          fill_in(fill_in(file.text, "@NAME@", name), "@PLACE@", place));
  }
  fmt::print("{0} is made. Next:\n  cd {0}\n  tp run train.cpp\n", directory.string());
}

}  // namespace

void add_new_project(CLI::App& app, int& status) {
  const auto directory = std::make_shared<fs::path>();
  CLI::App* command = app.add_subcommand("new", "Make a project to begin with: tp new NAME");
  command->add_option("name", *directory, "The directory, which is made; its last part is the name")
      ->required();
  command->callback([directory, &status] {
    try {
      make_project(directory->lexically_normal());
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      status = 2;
    }
  });
}

}  // namespace tensorpack
