// SPDX-License-Identifier: Apache-2.0
// What the user of a program sees when something is wrong: a message, an exit status, nothing else.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class BadUsageProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(program_)) GTEST_SKIP() << "the examples are not built";
  }

  int run(std::vector<std::string> flags) {
    flags.insert(flags.begin(), program_);
    ChildProcess child(std::move(flags));
    const int status = child.wait();
    output_ = child.output();
    EXPECT_THAT(output_, Not(HasSubstr("terminate called")));
    EXPECT_THAT(output_, Not(HasSubstr("frame #"))) << "a stack trace";
    return status;
  }

  std::string program_ = TENSORPACK_EXAMPLES "/fashion_mnist";
  TempDir dir_;
  std::string logdir_ = dir_ / "log";
  std::string output_;
};

TEST_F(BadUsageProcessTest, MissingDataIsToldWithItsPath) {
  EXPECT_EQ(run({"--logdir", logdir_, "--data", dir_ / "nowhere"}), 1);
  EXPECT_THAT(output_, HasSubstr("error: ["));
  EXPECT_THAT(output_, HasSubstr(dir_ / "nowhere"));
}

TEST_F(BadUsageProcessTest, TruncatedDataIsToldWithItsFile) {
  const fs::path data = dir_ / "data";
  fs::create_directories(data);
  for (const char* name : {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                           "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    std::ofstream(data / name) << std::string("\0\0\x08\x03\0\0", 6);
  }
  EXPECT_EQ(run({"--logdir", logdir_, "--data", data}), 1);
  EXPECT_THAT(output_, HasSubstr("error: ["));
  EXPECT_THAT(output_, HasSubstr("train-images-idx3-ubyte"));
}

TEST_F(BadUsageProcessTest, UnusableLogDirectoryIsToldAndNothingIsWritten) {
  const fs::path file = dir_ / "file";
  write_file_atomically(file, "mine");
  EXPECT_EQ(run({"--logdir", file / "log"}), 1);
  EXPECT_THAT(output_, HasSubstr("error: ["));
  EXPECT_THAT(output_, HasSubstr(file.string()));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), fs::directory_iterator()), 1);
}

TEST_F(BadUsageProcessTest, WrongFlagEndsWith2AndNothingIsWritten) {
  EXPECT_EQ(run({"--logdir", logdir_, "--epoch", "1"}), 2);
  EXPECT_THAT(output_, HasSubstr("--epoch"));
  EXPECT_EQ(run({"--logdir", logdir_, "--epochs", "none"}), 2);
  EXPECT_EQ(run({"--logdir", logdir_, "--batch", "0"}), 2);
  EXPECT_FALSE(fs::exists(logdir_));
}

TEST_F(BadUsageProcessTest, HelpEndsWith0) {
  EXPECT_EQ(run({"--help"}), 0);
  EXPECT_THAT(output_, HasSubstr("--logdir"));
}

}  // namespace
}  // namespace tensorpack
