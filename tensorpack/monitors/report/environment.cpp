// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report/environment.h"

#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/version.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/host_memory.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::report {
namespace {

namespace fs = std::filesystem;

// What follows "key:" in the first line of a file that begins so; empty if there is none.
std::string value_in(const fs::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// As the driver names them; libtorch would have to be built with CUDA.
std::string gpus() {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", ignored)) {
    names.push_back(value_in(gpu.path() / "information", "Model"));
  }
  return join(names);
}

std::string compiler() {
#ifdef __clang__
  return __VERSION__;  // names itself
#else
  return "GCC " __VERSION__;
#endif
}

}  // namespace

Facts environment_facts() {
  utsname system{};
  uname(&system);
  Facts facts = {
      {"Command", join(command_line(), " ")},
      {"Folder", fs::current_path().string()},
      {"Started", fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(std::time(nullptr)))},
      {"Host", system.nodename},
      {"System", fmt::format("{} {} {}", system.sysname, system.release, system.machine)},
      {"Processor", value_in("/proc/cpuinfo", "model name")},
      {"Cores", fmt::format("{}, threads per operator: {}", sysconf(_SC_NPROCESSORS_ONLN),
                            at::get_num_threads())},
      {"Memory", humanize_bytes(host_memory())},
      {"GPU", gpus()},
      {"Tensorpack", TENSORPACK_VERSION},
      {"libtorch", TORCH_VERSION},
      {"Compiler", compiler()},
  };
  std::erase_if(facts, [](const auto& fact) { return fact.second.empty(); });
  return facts;
}

}  // namespace tensorpack::report
