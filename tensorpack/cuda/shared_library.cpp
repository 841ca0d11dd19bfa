// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/shared_library.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <filesystem>

namespace tensorpack::cuda {
namespace {

std::filesystem::path libtorch_folder() {
  Dl_info info = {};
  const auto* symbol = reinterpret_cast<const void*>(&c10::Dispatcher::realSingleton);
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  return std::filesystem::path(info.dli_fname).parent_path();
}

}  // namespace

SharedLibrary::SharedLibrary(const char* where, std::string name,
                             const std::vector<std::string>& places)
    : where_(where), name_(std::move(name)) {
  for (const std::string& place : places) {
    handle_ = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) return;
  }
  const char* reason = dlerror();
  throw make_error(where_,
                   "{} was not found ({}). Install it, or add its folder to LD_LIBRARY_PATH.",
                   name_, reason == nullptr ? "no reason given" : reason);
}

std::vector<std::string> places_of(const std::string& name,
                                   const std::vector<std::string>& versions) {
  const std::string file = fmt::format("lib{}.so", name);
  std::vector<std::string> places;
  for (const std::string& version : versions) places.push_back(file + "." + version);
  places.push_back(file);
  const std::filesystem::path torch = libtorch_folder();
  if (torch.empty()) return places;
  std::error_code ignored;
  const std::filesystem::path wheels = torch / "../../nvidia";
  for (const auto& wheel : std::filesystem::directory_iterator(wheels, ignored)) {
    for (const auto& entry : std::filesystem::directory_iterator(wheel.path() / "lib", ignored)) {
      if (entry.path().filename().string().starts_with(file)) places.push_back(entry.path());
    }
  }
  return places;
}

std::string beside_libtorch(const std::string& file) { return (libtorch_folder() / file).string(); }

}  // namespace tensorpack::cuda
