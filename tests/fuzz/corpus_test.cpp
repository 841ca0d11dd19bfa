// SPDX-License-Identifier: Apache-2.0
// What `make fuzz` begins with and what it found, read in every build.
#include <gtest/gtest.h>

#include <filesystem>

#include "tensorpack/utils/fs.h"
#include "tests/fuzz/readers.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

class CorpusTest : public testing::TestWithParam<std::string> {};

TEST_P(CorpusTest, IsReadOrRefused) {
  int files = 0;
  stdout_of([&] {
    for (const auto& file : fs::directory_iterator(fs::path(TENSORPACK_CORPUS) / GetParam())) {
      EXPECT_NO_THROW(read_by(GetParam(), read_file(file.path()))) << file.path();
      ++files;
    }
  });
  EXPECT_GT(files, 0);
}

INSTANTIATE_TEST_SUITE_P(Readers, CorpusTest, testing::ValuesIn(reader_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tensorpack
