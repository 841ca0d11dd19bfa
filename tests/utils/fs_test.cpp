// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/fs.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <ostream>
#include <set>
#include <stdexcept>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::ThrowsMessage;

std::ptrdiff_t files_in(const TempDir& dir) {
  return std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator());
}

TEST(WriteFileAtomicallyTest, ReadsBackWhatWasWritten) {
  const TempDir dir;
  write_file_atomically(dir / "a", "old");
  write_file_atomically(dir / "a", std::string_view("\0new", 4));
  EXPECT_EQ(read_file(dir / "a"), std::string("\0new", 4));
  EXPECT_EQ(files_in(dir), 1);
}

TEST(WriteFileAtomicallyTest, KeepsTheOrderOfSmallAndLargeWrites) {
  const TempDir dir;
  const std::string large(200'000, 'x');
  write_file_atomically(dir / "a", [&](std::ostream& out) { out << "head" << large << "tail"; });
  EXPECT_EQ(read_file(dir / "a"), "head" + large + "tail");
}

TEST(WriteFileAtomicallyTest, ThrowingWriterLeavesTheOldFile) {
  const TempDir dir;
  write_file_atomically(dir / "a", "old");
  EXPECT_THROW(write_file_atomically(dir / "a",
                                     [](std::ostream& out) {
                                       out << "half";
                                       throw std::out_of_range("writer");
                                     }),
               std::out_of_range);
  EXPECT_EQ(read_file(dir / "a"), "old");
  EXPECT_EQ(files_in(dir), 1);
}

TEST(WriteFileAtomicallyTest, FailureNamesPathAndReason) {
  const TempDir dir;
  EXPECT_THAT([&] { write_file_atomically(dir / "missing" / "a", "x"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("missing/a"), HasSubstr("No such file"))));
}

TEST(WriteFileAtomicallyTest, FailedRenameRemovesTheTemporaryFile) {
  const TempDir dir;
  fs::create_directory(dir / "a");
  EXPECT_THAT([&] { write_file_atomically(dir / "a", "x"); },
              ThrowsMessage<Error>(HasSubstr("Is a directory")));
  EXPECT_EQ(files_in(dir), 1);
}

TEST(WriteFileAtomicallyTest, WritesIntoTheWorkingDirectory) {
  const TempDir dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  write_file_atomically("a", "x");
  fs::current_path(before);
  EXPECT_EQ(read_file(dir / "a"), "x");
}

// In a container the number of the process is the same after every restart.
TEST(WriteFileAtomicallyTest, WhatAKilledProcessLeftIsNotInTheWay) {
  const TempDir dir;
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    // As a child that is killed in the middle of writing.
    const pid_t child = ::fork();
    if (child == 0) {
      write_file_atomically(dir / "a", [](std::ostream& out) {
        out << "half" << std::flush;
        ::_exit(0);
      });
    }
    ::waitpid(child, nullptr, 0);
  }
  for (const auto& file : fs::directory_iterator(dir.path())) names.insert(file.path().filename());
  EXPECT_THAT(names, testing::AllOf(testing::SizeIs(3),
                                    testing::Each(MatchesRegex("\\.a\\.tmp\\.[0-9a-f]{16}"))));
}

TEST(RemoveStaleTemporariesTest, RemovesWhatNobodyWritesAndNothingElse) {
  const TempDir dir;
  for (const char* name : {".a.tmp.0123456789abcdef", ".model-20.safetensors.tmp.1.1"}) {
    std::ofstream(dir / name) << "half";
  }
  for (const char* name : {"a", ".hidden", "a.tmp.1"}) std::ofstream(dir / name) << "whole";
  fs::create_directory(dir / ".b.tmp.1");
  write_file_atomically(dir / "b", [&](std::ostream&) {
    remove_stale_temporaries(dir.path());
    EXPECT_EQ(files_in(dir), 5) << "the one that is being written is left alone";
  });
  EXPECT_EQ(files_in(dir), 5);
  EXPECT_TRUE(fs::exists(dir / "b"));
  remove_stale_temporaries(dir / "missing");
}

TEST(ReadFileTest, FailureNamesPathAndReason) {
  EXPECT_THAT([] { read_file("/nonexistent/a"); },
              ThrowsMessage<Error>(HasSubstr("cannot read '/nonexistent/a': No such file")));
  EXPECT_THAT([] { read_file("/"); }, ThrowsMessage<Error>(HasSubstr("Is a directory")));
}

TEST(TimestampTest, IsMonthDayDashTime) {
  EXPECT_THAT(timestamp(), MatchesRegex("[01][0-9][0-3][0-9]-[0-2][0-9][0-5][0-9][0-6][0-9]"));
}

TEST(DatasetPathTest, EnvironmentComesBeforeHome) {
  const ScopedEnv home("HOME", "/home/me");
  {
    const ScopedEnv dataset("TENSORPACK_DATASET", "/data");
    EXPECT_EQ(dataset_path("mnist"), "/data/mnist");
    EXPECT_EQ(dataset_path(), "/data");
  }
  const ScopedEnv unset("TENSORPACK_DATASET", std::nullopt);
  EXPECT_EQ(dataset_path("mnist"), "/home/me/tensorpack_data/mnist");
}

TEST(DatasetPathTest, NeitherSetThrows) {
  const ScopedEnv dataset("TENSORPACK_DATASET", std::nullopt), home("HOME", std::nullopt);
  EXPECT_THAT([] { dataset_path("mnist"); },
              ThrowsMessage<Error>(HasSubstr("Set TENSORPACK_DATASET")));
}

TEST(TempDirTest, IsRemovedWithItsContents) {
  fs::path path;
  {
    const TempDir dir;
    path = dir.path();
    EXPECT_TRUE(fs::is_directory(path));
    fs::create_directories(dir / "a/b");
    write_file_atomically(dir / "a/b/c", "x");
  }
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace tensorpack
