// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/toolchain.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <sstream>

#include "programs/tp/shell.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

/// Where the options are: <build>/programs/tp, or <prefix>/share/tensorpack.
fs::path options_directory() {
  std::error_code unknown;
  const fs::path here = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  for (const fs::path& place : {here, here / TENSORPACK_OPTIONS_FROM_TP}) {
    if (fs::is_regular_file(place / "link.txt", unknown)) return place;
  }
  throw make_error(kTpRun,
                   "the options that the library was built with are not there: neither '{0}' nor "
                   "'{1}' has link.txt. Build tp with the library, or install both: make install.",
                   here.string(), (here / TENSORPACK_OPTIONS_FROM_TP).string());
}

/// The words of a file, one a line; in an installed file `{prefix}` stands for the prefix.
Words read_words(const fs::path& path) {
  constexpr std::string_view kPrefix = "{prefix}";
  const std::string prefix =
      (path.parent_path() / TENSORPACK_PREFIX_FROM_OPTIONS).lexically_normal().string();
  std::istringstream lines(read_file(path));
  Words words;
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(kPrefix);
    if (at != std::string::npos) line.replace(at, kPrefix.size(), prefix);
    words.push_back(line);
  }
  TP_CHECK(!words.empty(), kTpRun, "'{}' is empty. Build or install the library again.",
           path.string());
  return words;
}

bool is_program(const fs::path& path) { return access(path.c_str(), X_OK) == 0; }

std::optional<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return is_program(name) ? std::optional(name) : std::nullopt;
  }
  std::istringstream path(env("PATH").value_or(""));
  for (std::string directory; std::getline(path, directory, ':');) {
    if (is_program(fs::path(directory) / name)) return (fs::path(directory) / name).string();
  }
  return std::nullopt;
}

/// The words of $CXX, which may hold options, too, and a launcher. That is left out: what is
/// compiled is kept anyway.
Words chosen_compiler(const std::string& chosen) {
  if (const auto found = find_program(chosen)) return {*found};
  Words words;
  std::istringstream in(chosen);
  for (std::string word; in >> word;) words.push_back(word);
  const bool has_launcher = words.size() > 1 && !words[1].starts_with('-');
  if (has_launcher) words.erase(words.begin());
  const auto found = words.empty() ? std::nullopt : find_program(words[0]);
  TP_CHECK(found, kTpRun, "the compiler '{}', which CXX names, is not there. Install or unset it.",
           chosen);
  words[0] = *found;
  return words;
}

/// The compiler and options that come with it.
Words find_compiler(const std::string& of_the_build) {
  if (const auto chosen = env("CXX")) return chosen_compiler(*chosen);
  for (const std::string& name : {of_the_build, std::string("clang++"), std::string("g++")}) {
    if (const auto found = find_program(name)) return {*found};
  }
  throw make_error(kTpRun,
                   "there is no compiler: neither '{}' nor clang++ or g++ on the PATH. Install one "
                   "(Debian: apt-get install clang lld), or name it by CXX.",
                   of_the_build);
}

std::string version_of(const std::string& compiler) {
  const std::string command = shell_text({compiler, "--version"}) + " 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  TP_CHECK(pipe, kTpRun, "'{}' cannot be started.", compiler);
  std::string text;
  char buffer[4096];
  for (size_t count = 0; (count = fread(buffer, 1, sizeof(buffer), pipe.get())) > 0;) {
    text.append(buffer, count);
  }
  return text;
}

void check_library(const Words& link_options) {
  for (const std::string& word : link_options) {
    std::error_code unknown;
    TP_CHECK(!word.ends_with("libtensorpack.a") || fs::exists(word, unknown), kTpRun,
             "the library '{}' is not there. Build it (make run) or install it (make install).",
             word);
  }
}

}  // namespace

Toolchain find_toolchain() {
  const fs::path directory = options_directory();
  const Words compile = read_words(directory / "compile.txt");
  const Words link = read_words(directory / "link.txt");
  check_library(link);
  const Words compiler = find_compiler(compile.front());
  Toolchain tools{.compiler = compiler.front(),
                  .compile_options = Words(compiler.begin() + 1, compiler.end()),
                  .link_options = Words(link.begin() + 1, link.end())};
  tools.compile_options.insert(tools.compile_options.end(), compile.begin() + 1, compile.end());
  tools.version = version_of(tools.compiler);
  tools.is_clang = tools.version.find("clang") != std::string::npos;
  if (find_program("ld.lld")) tools.link_options.insert(tools.link_options.begin(), "-fuse-ld=lld");
  return tools;
}

}  // namespace tensorpack
