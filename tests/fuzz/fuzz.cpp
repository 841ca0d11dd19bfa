// SPDX-License-Identifier: Apache-2.0
// Has libFuzzer look for files that a reader gets wrong: fuzz <reader> <options of libFuzzer>.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/fuzz/readers.h"

namespace {

std::string reader;

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  const std::vector<std::string> names = tensorpack::reader_names();
  if (*argc > 1) reader = (*argv)[1];
  if (std::find(names.begin(), names.end(), reader) == names.end()) {
    std::fprintf(stderr, "usage: fuzz <reader> <options of libFuzzer>\nThe readers are:");
    for (const std::string& name : names) std::fprintf(stderr, " %s", name.c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  std::rotate(*argv + 1, *argv + 2, *argv + *argc);  // libFuzzer must not see it
  --*argc;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tensorpack::read_by(reader, {reinterpret_cast<const char*>(data), size});
  return 0;
}
