// SPDX-License-Identifier: Apache-2.0
// A program made of a user's source files and the library. What is compiled is kept in the cache
// directory, and made again only when what it was made of has changed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "programs/tp/toolchain.h"

namespace tensorpack {

struct BuildOptions {
  std::vector<std::filesystem::path> sources = {};
  bool release = false;    ///< -O3 instead of -O1
  bool debug = false;      ///< -g, not optimized
  Words cxx_options = {};  ///< passed to the compiler and to the linker
};

class UserProgram {
 public:
  /// Throws Error when a source, the compiler, the library or the cache directory is missing.
  explicit UserProgram(const BuildOptions& options);

  /// Compiles what has changed and links. False when the compiler found an error, which it has
  /// written to the standard error.
  bool build() const;
  /// The commands that build() would run if nothing were there, for a shell, and the program with
  /// its words.
  std::vector<std::string> commands(const Words& program_words) const;
  /// The program, once it is built.
  const std::filesystem::path& path() const { return program_; }
  /// The files that it is made of: sources, and headers but those that the library includes. After
  /// build() failed also those that it would be made of; some of them may be missing.
  std::vector<std::filesystem::path> files() const;

 private:
  struct Unit {
    std::filesystem::path source;
    std::filesystem::path object;
    std::filesystem::path record() const { return object.string() + ".json"; }
    std::filesystem::path dependencies() const { return object.string() + ".d"; }
  };

  std::filesystem::path header_file() const;
  std::filesystem::path precompiled_header() const;
  std::filesystem::path header_record() const;
  Words precompile_command(const std::filesystem::path& to) const;
  Words compile_command(const Unit& unit) const;
  Words link_command(const std::filesystem::path& to) const;
  /// What the object depends on: the command, and which precompiled header it was compiled with.
  std::string object_key(const Unit& unit) const;

  void precompile() const;
  bool compile_changed() const;
  bool compile(const Unit& unit) const;
  std::vector<std::filesystem::path> dependencies(const Unit& unit) const;
  std::vector<std::filesystem::path> dependencies_of_failure(const Unit& unit) const;
  bool link() const;

  Toolchain tools_;
  Words options_;         // of every compilation
  Words header_options_;  // of the precompiled header
  Words link_options_;
  bool has_own_libraries_ = false;  // the user's, by cxx_options
  std::filesystem::path header_directory_;
  std::filesystem::path directory_;
  std::vector<Unit> units_;
  std::filesystem::path program_;
};

}  // namespace tensorpack
