// SPDX-License-Identifier: Apache-2.0
// Has libFuzzer look for files that a reader gets wrong: fuzz --reader=npz <options of libFuzzer>.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tensorpack/utils/logger.h"
#include "tests/fuzz/readers.h"

namespace {

std::string reader;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  constexpr std::string_view kOption = "--reader=";  // libFuzzer leaves what begins with -- alone
  for (int i = 1; i < *argc; ++i) {
    const std::string_view argument = (*argv)[i];
    if (argument.starts_with(kOption)) reader = argument.substr(kOption.size());
  }
  const std::vector<std::string> names = tensorpack::reader_names();
  if (std::find(names.begin(), names.end(), reader) == names.end()) {
    std::fprintf(stderr, "usage: fuzz --reader=NAME <options of libFuzzer>\nThe readers are:");
    for (const std::string& name : names) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  tensorpack::logging::set_level(tensorpack::logging::Level::kOff);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tensorpack::read_by(reader, {reinterpret_cast<const char*>(data), size});
  return 0;
}
