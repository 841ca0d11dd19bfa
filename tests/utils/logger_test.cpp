// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/logger.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/file_lock.h"
#include "tensorpack/utils/fs.h"
#include "tests/utils/support.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::ThrowsMessage;

constexpr const char* kStamp = "[0-9]{4}-[0-9]{6}";

TEST(LoggerTest, LineHasTimePlaceAndText) {
  EXPECT_THAT(stdout_of([] { logging::info("epoch {} of {}", 3, "ten"); }),
              MatchesRegex("\\[[0-9]{4} [0-9:]{8} @logger_test.cpp:[0-9]+\\] epoch 3 of ten\n"));
}

TEST(LoggerTest, PlaceIsThatOfTheCall) {
  const int line = __LINE__ + 1;
  const std::string text = stdout_of([] { logging::info("here"); });
  EXPECT_THAT(text, HasSubstr("@logger_test.cpp:" + std::to_string(line) + "]"));
}

TEST(LoggerTest, LevelsHaveMarks) {
  EXPECT_THAT(stdout_of([] { logging::warning("careful"); }), HasSubstr("] WRN careful\n"));
  EXPECT_THAT(stdout_of([] { logging::error("broken"); }), HasSubstr("] ERR broken\n"));
}

TEST(LoggerTest, LevelDropsWhatIsBelow) {
  EXPECT_THAT(stdout_of([] { logging::debug("detail"); }), IsEmpty());
  logging::set_level(logging::Level::kDebug);
  EXPECT_THAT(stdout_of([] { logging::debug("detail"); }), HasSubstr("] DBG detail\n"));
  logging::set_level(logging::Level::kError);
  EXPECT_THAT(stdout_of([] { logging::warning("careful"); }), IsEmpty());
  logging::set_level(logging::Level::kOff);
  EXPECT_THAT(stdout_of([] { logging::error("broken"); }), IsEmpty());
  logging::set_level(logging::Level::kInfo);
}

TEST(LoggerTest, BracesInArgumentsAreJustText) {
  EXPECT_THAT(stdout_of([] { logging::info("{}", "{not a format}"); }),
              HasSubstr("] {not a format}\n"));
}

TEST(LoggerTest, WarningOnceIsSaidOncePerText) {
  static int run = 0;  // a repeated test needs new texts
  ++run;
  const auto warn = [](int i) { logging::warning_once("run {} number {}", run, i); };
  EXPECT_THAT(stdout_of([&] { warn(1); }),
              AllOf(HasSubstr("] WRN run "), HasSubstr(" number 1\n")));
  EXPECT_THAT(stdout_of([&] { warn(1); }), IsEmpty());
  EXPECT_THAT(stdout_of([&] { warn(2); }), HasSubstr("number 2"));
  const auto tell = [](int i) { logging::info_once("told {} number {}", run, i); };
  EXPECT_THAT(stdout_of([&] { tell(1); }), HasSubstr("] told "));
  EXPECT_THAT(stdout_of([&] { tell(1); }), IsEmpty());
}

class LoggerDirTest : public testing::Test {
 protected:
  ~LoggerDirTest() override { reset_logger_dir(); }

  // Sets the directory without showing what is logged.
  fs::path set(const fs::path& dir, LogDirAction action) {
    fs::path result;
    output_ = stdout_of([&] { result = set_logger_dir(dir, action); });
    return result;
  }

  // A directory that a run has used.
  fs::path used_dir() {
    fs::create_directory(root_ / "run");
    write_file_atomically(root_ / "run/stats.json", "old");
    return root_ / "run";
  }

  // The names in the root, each date replaced by DATE.
  std::vector<std::string> listing(const fs::path& dir) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir)) {
      std::string name = entry.path().filename().string();
      if (name == ".lock") continue;
      const std::size_t length = std::string("MMDD-HHMMSS").size();
      if (name.size() > length &&
          testing::Matches(MatchesRegex(kStamp))(name.substr(name.size() - length))) {
        name.replace(name.size() - length, length, "DATE");
      }
      names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TempDir root_;
  std::string output_;
  ScopedEnv action_{"TENSORPACK_LOGDIR_ACTION", std::nullopt};
};

using Names = std::vector<std::string>;

TEST_F(LoggerDirTest, UnsetUntilSet) {
  EXPECT_EQ(get_logger_dir(), std::nullopt);
  EXPECT_EQ(set(root_ / "a/b", LogDirAction::kQuit), root_ / "a/b");
  EXPECT_EQ(get_logger_dir(), root_ / "a/b");
  reset_logger_dir();
  EXPECT_EQ(get_logger_dir(), std::nullopt);
}

TEST_F(LoggerDirTest, FileGetsTheLinesAndTheCommandLine) {
  set(root_ / "run", LogDirAction::kQuit);
  stdout_of([] { logging::warning("careful"); });
  const std::string text = read_file(root_ / "run/log.log");
  EXPECT_THAT(text, AllOf(HasSubstr("] Command line: "), HasSubstr(program_invocation_short_name)));
  EXPECT_THAT(text, HasSubstr("] WRN careful\n"));
  reset_logger_dir();
  stdout_of([] { logging::warning("later"); });
  EXPECT_THAT(read_file(root_ / "run/log.log"), Not(HasSubstr("later")));
}

TEST_F(LoggerDirTest, HiddenFilesDoNotCount) {
  fs::create_directory(root_ / "run");
  write_file_atomically(root_ / "run/.hidden", "");
  EXPECT_NO_THROW(set(root_ / "run", LogDirAction::kQuit));
}

TEST_F(LoggerDirTest, KeepMovesTheOldLogAway) {
  const fs::path dir = used_dir();
  write_file_atomically(dir / "log.log", "old log");
  EXPECT_EQ(set(dir, LogDirAction::kKeep), dir);
  EXPECT_EQ(listing(dir), (Names{"log.log", "log.log.DATE", "stats.json"}));
  EXPECT_THAT(read_file(dir / "log.log"), Not(HasSubstr("old log")));
}

TEST_F(LoggerDirTest, DeleteStartsAfresh) {
  const fs::path dir = used_dir();
  EXPECT_EQ(set(dir, LogDirAction::kDelete), dir);
  EXPECT_EQ(listing(dir), Names{"log.log"});
  EXPECT_EQ(listing(root_.path()), Names{"run"});
}

TEST_F(LoggerDirTest, BackupRenamesTheOldOne) {
  const fs::path dir = used_dir();
  EXPECT_EQ(set(dir / "", LogDirAction::kBackup), dir);
  EXPECT_EQ(listing(root_.path()), (Names{"run", "runDATE"}));
  EXPECT_EQ(listing(dir), Names{"log.log"});
}

TEST_F(LoggerDirTest, TwoBackupsInOneSecondDoNotCollide) {
  const fs::path dir = used_dir();
  set(dir, LogDirAction::kBackup);
  set(dir, LogDirAction::kBackup);
  EXPECT_EQ(listing(root_.path()).size(), 3u);
}

TEST_F(LoggerDirTest, OfALinkTheDirectoryItLeadsToIsBackedUp) {
  const fs::path dir = used_dir();
  fs::create_directory(root_ / "links");
  fs::create_directory_symlink(dir, root_ / "links/run");
  EXPECT_EQ(set(root_ / "links/run", LogDirAction::kBackup), root_ / "links/run");
  EXPECT_EQ(listing(root_ / "links"), Names{"run"}) << "the link was renamed";
  EXPECT_EQ(listing(root_.path()), (Names{"links", "run", "runDATE"}));
  EXPECT_EQ(listing(dir), Names{"log.log"});
  EXPECT_EQ(fs::canonical(root_ / "links/run"), fs::canonical(dir));
  set(root_ / "links/run", LogDirAction::kDelete);
  EXPECT_EQ(fs::canonical(root_ / "links/run"), fs::canonical(dir));
  EXPECT_EQ(listing(dir), Names{"log.log"});
}

TEST_F(LoggerDirTest, OneProcessAtATimeUsesADirectory) {
  const fs::path dir = used_dir();
  {
    const FileLock other(dir / ".lock");  // as another process would hold it
    for (const auto action : {LogDirAction::kKeep, LogDirAction::kDelete, LogDirAction::kBackup}) {
      EXPECT_THAT([&] { set_logger_dir(dir, action); },
                  ThrowsMessage<Error>(
                      AllOf(HasSubstr("run' is in use by process "), HasSubstr(" since "))));
    }
    EXPECT_EQ(listing(root_.path()), Names{"run"});
    EXPECT_EQ(listing(dir), Names{"stats.json"});
    EXPECT_NO_THROW(set(dir, LogDirAction::kNew));
  }
  EXPECT_NO_THROW(set(dir, LogDirAction::kKeep));
  EXPECT_TRUE(FileLock(dir / ".lock").other_holder()) << "now it is ours";
  reset_logger_dir();
  EXPECT_FALSE(FileLock(dir / ".lock").other_holder());
}

TEST_F(LoggerDirTest, WhatAKilledRunLeftHalfWrittenIsRemoved) {
  const fs::path dir = used_dir();
  std::ofstream(dir / ".model-20.safetensors.tmp.1.1") << "half";
  set(dir, LogDirAction::kKeep);
  EXPECT_EQ(listing(dir), (Names{"log.log", "stats.json"}));
}

TEST_F(LoggerDirTest, NewLeavesTheOldOne) {
  const fs::path dir = used_dir();
  const fs::path chosen = set(dir, LogDirAction::kNew);
  EXPECT_EQ(get_logger_dir(), chosen);
  EXPECT_EQ(listing(root_.path()), (Names{"run", "runDATE"}));
  EXPECT_EQ(listing(dir), Names{"stats.json"});
  EXPECT_EQ(listing(chosen), Names{"log.log"});
}

TEST_F(LoggerDirTest, QuitThrowsAndTouchesNothing) {
  const fs::path dir = used_dir();
  EXPECT_THAT([&] { set_logger_dir(dir, LogDirAction::kQuit); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("run' has files in it"), HasSubstr("TENSORPACK_LOGDIR_ACTION"))));
  EXPECT_EQ(listing(dir), Names{"stats.json"});
  EXPECT_EQ(get_logger_dir(), std::nullopt);
}

// Makes a descriptor the standard input until the end of the scope, and closes it.
class ScopedStdin {
 public:
  explicit ScopedStdin(int fd) : before_(::dup(STDIN_FILENO)) {
    ::dup2(fd, STDIN_FILENO);
    ::close(fd);
  }
  ~ScopedStdin() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST_F(LoggerDirTest, AskMeansBackupWithoutATerminal) {
  const fs::path dir = used_dir();
  const ScopedStdin no_terminal(::open("/dev/null", O_RDONLY));
  EXPECT_EQ(set(dir, LogDirAction::kAsk), dir);
  EXPECT_EQ(listing(root_.path()), (Names{"run", "runDATE"}));
  EXPECT_THAT(output_, HasSubstr("there is no terminal to ask: it is backed up"));
}

TEST_F(LoggerDirTest, AskRepeatsUntilItUnderstands) {
  const fs::path dir = used_dir();
  const int keyboard = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(keyboard, 0);
  ASSERT_EQ(::grantpt(keyboard) + ::unlockpt(keyboard), 0);
  const ScopedStdin terminal(::open(::ptsname(keyboard), O_RDWR | O_NOCTTY));
  ASSERT_EQ(::write(keyboard, "\nx\nk\n", 5), 5);
  EXPECT_EQ(set(dir, LogDirAction::kAsk), dir);
  ::close(keyboard);
  EXPECT_EQ(listing(dir), (Names{"log.log", "stats.json"}));
  EXPECT_THAT(output_, ContainsRegex("run' has files in it.*quit.*quit.*quit"));
}

TEST_F(LoggerDirTest, EnvironmentAnswersTheQuestion) {
  const fs::path dir = used_dir();
  const ScopedEnv keep("TENSORPACK_LOGDIR_ACTION", "keep");
  EXPECT_EQ(set(dir, LogDirAction::kAsk), dir);
  EXPECT_EQ(listing(dir), (Names{"log.log", "stats.json"}));
  EXPECT_EQ(listing(root_.path()), Names{"run"});
}

TEST_F(LoggerDirTest, EnvironmentDoesNotOverruleTheProgram) {
  const fs::path dir = used_dir();
  const ScopedEnv erase("TENSORPACK_LOGDIR_ACTION", "delete");
  set(dir, LogDirAction::kKeep);
  EXPECT_EQ(listing(dir), (Names{"log.log", "stats.json"}));
}

TEST_F(LoggerDirTest, UnknownAnswerOfTheEnvironmentThrows) {
  const fs::path dir = used_dir();
  const ScopedEnv typo("TENSORPACK_LOGDIR_ACTION", "kep");
  EXPECT_THAT([&] { set_logger_dir(dir, LogDirAction::kAsk); },
              ThrowsMessage<Error>(HasSubstr("'kep' is no action. Did you mean 'keep'?")));
}

TEST_F(LoggerDirTest, RefusesToRemoveTheWorkingDirectory) {
  const fs::path dir = used_dir();
  const fs::path before = fs::current_path();
  fs::current_path(dir);
  for (const auto action : {LogDirAction::kDelete, LogDirAction::kBackup}) {
    EXPECT_THAT([&] { set_logger_dir(dir, action); },
                ThrowsMessage<Error>(HasSubstr("contains the working directory")));
  }
  fs::current_path(before);
  EXPECT_EQ(listing(dir), Names{"stats.json"});
}

TEST_F(LoggerDirTest, UncreatableDirectoryNamesPathAndReason) {
  write_file_atomically(root_ / "file", "");
  EXPECT_THAT([&] { set_logger_dir(root_ / "file/run", LogDirAction::kKeep); },
              ThrowsMessage<Error>(AllOf(HasSubstr("cannot use '"), HasSubstr("file/run': "),
                                         HasSubstr("Not a directory. Choose a directory"))));
  EXPECT_THAT([&] { set_logger_dir(root_ / "file", LogDirAction::kKeep); },
              ThrowsMessage<Error>(HasSubstr("Not a directory")));
  EXPECT_THAT([] { set_logger_dir("", LogDirAction::kKeep); },
              ThrowsMessage<Error>(HasSubstr("the path is empty")));
}

TEST_F(LoggerDirTest, UnwritableDirectoryThrows) {
  EXPECT_THAT([] { set_logger_dir("/proc/self", LogDirAction::kKeep); },
              ThrowsMessage<Error>(HasSubstr("cannot use '/proc/self': ")));
  EXPECT_EQ(get_logger_dir(), std::nullopt);
}

TEST_F(LoggerDirTest, AutoSetDirIsNamedAfterTheScript) {
  const fs::path before = fs::current_path();
  fs::current_path(root_.path());
  stdout_of([] {
    EXPECT_EQ(auto_set_dir(LogDirAction::kQuit, "", "/src/mnist.cpp"), "train_log/mnist");
    EXPECT_EQ(auto_set_dir(LogDirAction::kQuit, "lr1", "mnist.cpp"), "train_log/mnist:lr1");
    EXPECT_EQ(auto_set_dir(LogDirAction::kQuit),
              fs::path("train_log") / fs::path(program_invocation_short_name).stem());
  });
  fs::current_path(before);
}

TEST_F(LoggerDirTest, ThreadsLogWholeLinesWhileTheFileChanges) {
  constexpr int kThreads = 4, kLines = 200;
  const std::string text = stdout_of([&] {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < kLines; ++i) logging::info("thread {} line {}", t, i);
      });
    }
    for (int i = 0; i < 5; ++i) set_logger_dir(root_ / "run", LogDirAction::kKeep);
  });
  int found = 0;
  for (std::size_t at = 0; (at = text.find("] thread ", at)) != std::string::npos; ++at) ++found;
  EXPECT_EQ(found, kThreads * kLines);
}

}  // namespace
}  // namespace tensorpack
