// SPDX-License-Identifier: Apache-2.0
// `tp run` with real compilers and real programs.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The programs here take a precompiled header that all tests share: it is made once a build.
class RunTest : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text) const {
    write_file_atomically(dir_ / name, text);
    return dir_ / name;
  }

  static std::unique_ptr<ChildProcess> start(std::vector<std::string> words) {
    words.insert(words.begin(), {TENSORPACK_TP, "run"});
    return std::make_unique<ChildProcess>(words);
  }

  /// The output of a run, which must end with the status.
  static std::string run(const std::vector<std::string>& words, int status = 0) {
    const auto tp = start(words);
    EXPECT_EQ(tp->wait(), status) << tp->output();
    return tp->output();
  }

  /// The commands that would be run.
  static std::vector<std::string> commands_of(const fs::path& source) {
    std::istringstream lines(run({"--flags", source}));
    std::vector<std::string> commands;
    for (std::string line; std::getline(lines, line);) commands.push_back(line);
    return commands;
  }

  /// The last command: the program alone.
  static fs::path program_of(const fs::path& source) { return commands_of(source).back(); }

  /// The second command makes it, by its last word.
  static fs::path precompiled_header_of(const fs::path& source) {
    const std::string command = commands_of(source).at(1);
    return command.substr(command.rfind(' ') + 1);
  }

  TempDir dir_;
  ScopedEnv cache_{"XDG_CACHE_HOME", TENSORPACK_RUN_CACHE};
};

constexpr const char* kPrintsItsWords = R"(
#include <cstdio>
int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) std::printf("<%s>", argv[i]);
  return argc;
}
)";

TEST_F(RunTest, TheProgramGetsItsWordsAndGivesItsStatus) {
  const fs::path source = write("words.cpp", kPrintsItsWords);
  EXPECT_THAT(run({source, "--", "--epochs", "3", "two words"}, 4),
              HasSubstr("<--epochs><3><two words>"));
}

TEST_F(RunTest, SeveralFilesAreOneProgram) {
  write("add.h", "int add(int a, int b);\n");
  const fs::path add =
      write("add.cpp", "#include \"add.h\"\nint add(int a, int b) { return a + b; }");
  const fs::path main = write("main.cpp", "#include \"add.h\"\nint main() { return add(40, 2); }");
  run({main, add}, 42);
}

TEST_F(RunTest, ATrainingRuns) {
  const fs::path source = write("train.cpp", R"(
#include <tensorpack/tensorpack.h>
using namespace tensorpack;
int main() {
  return run_main([] {
    SimpleTrainer trainer;
    launch_train_with_config(
        {.model = Model{.inputs = {{"x", {-1, 1}}},
                        .build_graph = [](Tensor x) { return FullyConnected("fc", x, {.units = 1}).square().mean(); },
                        .optimizer = SGD({.lr = 0.1})},
         .dataflow = FromList({{torch::ones({1})}}) | batch(1),
         .steps_per_epoch = 3,
         .max_epoch = 1},
        trainer);
    fmt::print("trained {} steps\n", trainer.global_step());
  });
}
)");
  EXPECT_THAT(run({source}), HasSubstr("trained 3 steps"));
  EXPECT_THAT(run({"--release", source}), HasSubstr("trained 3 steps"));
}

TEST_F(RunTest, NothingIsCompiledThatHasNotChanged) {
  const fs::path header = write("answer.h", "#define ANSWER 1\n");
  const fs::path source = write("main.cpp", "#include \"answer.h\"\nint main() { return ANSWER; }");
  run({source}, 1);
  const fs::path program = program_of(source);
  const auto made = fs::last_write_time(program);
  run({source}, 1);
  EXPECT_EQ(fs::last_write_time(program), made);

  fs::last_write_time(source, fs::file_time_type::clock::now());  // touched, the same contents
  run({source}, 1);
  EXPECT_EQ(fs::last_write_time(program), made);

  write("answer.h", "#define ANSWER 2\n");
  run({source}, 2);
  EXPECT_GT(fs::last_write_time(program), made);
}

TEST_F(RunTest, SystemHeadersThatHaveChangedAreCompiledAgain) {
  const fs::path source = write("main.cpp", "#include <seven.h>\nint main() { return SEVEN; }");
  fs::create_directory(dir_ / "system");
  const std::vector<std::string> words = {"--cxx=-isystem", "--cxx=" + (dir_ / "system").string(),
                                          source};
  write("system/seven.h", "#define SEVEN 7\n");
  run(words, 7);
  write("system/seven.h", "#define SEVEN 8\n");
  run(words, 8);
}

TEST_F(RunTest, OptionsReachTheCompiler) {
  const fs::path source = write("main.cpp", "#include <seven.h>\nint main() { return SEVEN; }");
  fs::create_directory(dir_ / "include");
  write("include/seven.h", "#define SEVEN 7\n");
  run({"--cxx=-I" + (dir_ / "include").string(), "--cxx=-Wall", source}, 7);
}

// A static library with a function `value()`.
fs::path write_library(const fs::path& directory, int value) {
  write_file_atomically(directory / "value.cpp",
                        fmt::format("int value() {{ return {}; }}", value));
  ChildProcess shell({"/bin/sh", "-ec",
                      "cd \"$0\"; g++ -c value.cpp -o value.o; rm -f libvalue.a; "
                      "ar rcs libvalue.a value.o",
                      directory});
  EXPECT_EQ(shell.wait(), 0) << shell.output();
  return directory / "libvalue.a";
}

TEST_F(RunTest, LibrariesAndObjectsReachTheLinkerAlone) {
  const fs::path source = write("main.cpp", "int value();\nint main() { return value(); }");
  const fs::path library = write_library(dir_.path(), 7);
  const std::string here = dir_.path().string();
  run({"--cxx=" + library.string(), source}, 7);
  run({"--cxx=" + (dir_ / "value.o").string(), source}, 7);
  run({"--cxx=-L", "--cxx=" + here, "--cxx=-lvalue", source}, 7);
  run({"--cxx=-Xlinker", "--cxx=" + library.string(), source}, 7);
  EXPECT_THAT(run({"--cxx=libvalue.so.1", source}, 1), Not(HasSubstr("precompil")));
}

TEST_F(RunTest, ALibraryThatHasChangedIsLinked) {
  const fs::path source = write("main.cpp", "int value();\nint main() { return value(); }");
  write_library(dir_.path(), 7);
  const std::string search = "--cxx=-L" + dir_.path().string();
  run({search, "--cxx=-lvalue", source}, 7);
  write_library(dir_.path(), 8);
  run({search, "--cxx=-lvalue", source}, 8);
}

TEST_F(RunTest, SignalsReachTheProgram) {
  const fs::path source = write("wait.cpp", R"(
#include <cstdio>
#include <unistd.h>
int main() { std::puts("ready"); std::fflush(stdout); for (;;) pause(); }
)");
  const auto tp = start({source});
  ASSERT_TRUE(tp->read_until("ready")) << tp->output();
  tp->send(SIGTERM);
  EXPECT_EQ(tp->wait(), 1000 + SIGTERM);
}

TEST_F(RunTest, ErrorsOfTheCompilerPassThrough) {
  const fs::path source = write("wrong.cpp", "int main() { return missing; }\n");
  EXPECT_THAT(run({source}, 1), AllOf(HasSubstr("wrong.cpp:1:"), HasSubstr("missing")));
  write("wrong.cpp", "int main() { return 5; }\n");
  run({source}, 5);
}

TEST_F(RunTest, AnOptionMayHaveSpaces) {
  const fs::path source = write("main.cpp", "#include <seven.h>\nint main() { return SEVEN; }");
  fs::create_directory(dir_ / "two words");
  write("two words/seven.h", "#define SEVEN 7\n");
  run({"--cxx=-I" + (dir_ / "two words").string(), source}, 7);
}

TEST_F(RunTest, TheCompilerMayHaveALauncherAndOptions) {
  const fs::path source = write("main.cpp", "int main() { return SEVEN; }");
  const ScopedEnv compiler("CXX", "some-launcher g++ -DSEVEN=7");
  EXPECT_THAT(run({"--flags", source}),
              AllOf(HasSubstr("g++ -O1 -DSEVEN=7"), Not(HasSubstr("some-launcher"))));
}

TEST_F(RunTest, TwoLevelsOfOptimizationAreAnError) {
  const fs::path source = write("main.cpp", "int main() {}");
  EXPECT_THAT(run({"-g", "--release", source}, 2), HasSubstr("excludes"));
}

TEST_F(RunTest, CommandsOfFlagsMakeTheProgramInAnEmptyCache) {
  const fs::path source = write("main.cpp", kPrintsItsWords);
  const ScopedEnv cache("XDG_CACHE_HOME", (dir_ / "cache").string());
  const std::string script = run({"--flags", source, "--", "two words"});
  ChildProcess shell({"/bin/sh", "-ec", script});
  EXPECT_EQ(shell.wait(), 2) << shell.output();
  EXPECT_THAT(shell.output(), HasSubstr("<two words>"));
}

// Newer versions of CMake have the linker write a list of the probe's files.
TEST_F(RunTest, OptionsThatAreOfTheProbeAloneAreNotRecorded) {
  const std::string options = dir_ / "link.txt";
  ChildProcess cmake({"/usr/bin/env", "cmake", "-DOUT=" + options, "-P", TENSORPACK_RECORD_OPTIONS,
                      "--", "/bin/true", "-O3", "-Wl,--dependency-file=probe/link.d", "probe.o",
                      "-o", "probe", "-Wl,--as-needed", "-lz"});
  EXPECT_EQ(cmake.wait(), 0) << cmake.output();
  EXPECT_EQ(read_file(options), "/bin/true\n-Wl,--as-needed\n-lz\n");
}

TEST_F(RunTest, FlagsPrintsTheCommandsAndRunsNothing) {
  const fs::path source = write("main.cpp", "int main() {}");
  const std::string text = run({"--flags", "--cxx=-DMINE", source});
  EXPECT_THAT(text, AllOf(HasSubstr("c++-header"), HasSubstr("-O1"), HasSubstr("-DMINE"),
                          HasSubstr("main.cpp"), HasSubstr("libtensorpack.a")));
  EXPECT_FALSE(fs::exists(program_of(source)));
}

TEST_F(RunTest, WhatIsMissingIsNamed) {
  EXPECT_THAT(run({dir_ / "none.cpp"}, 2), HasSubstr("none.cpp' is not there"));
  EXPECT_THAT(run({dir_.path()}, 2), HasSubstr("is not a file"));
  EXPECT_THAT(run({write("notes.txt", "")}, 2), HasSubstr("notes.txt' is not C++"));
  EXPECT_THAT(run({}, 2), HasSubstr("sources is required"));
  const fs::path source = write("main.cpp", "int main() {}");
  {
    const ScopedEnv compiler("CXX", "no-such-compiler");
    EXPECT_THAT(run({source}, 2), HasSubstr("'no-such-compiler', which CXX names, is not there"));
  }
  const ScopedEnv cache("XDG_CACHE_HOME", source.string());  // a file
  EXPECT_THAT(run({source}, 2), HasSubstr("XDG_CACHE_HOME names another directory"));
}

// In a mount namespace of its own, on a disk of 4 MiB.
TEST_F(RunTest, AFullDiskIsNamed) {
  const fs::path source = write("main.cpp", "int main() {}");
  const std::string disk = dir_ / "disk";
  fs::create_directory(disk);
  ChildProcess tp({"/usr/bin/env", "unshare", "--map-root-user", "--mount", "sh", "-c",
                   "mount -t tmpfs -o size=4m tmpfs \"$1\" || exit 77; "
                   "XDG_CACHE_HOME=\"$1\" exec \"$0\" run \"$2\"",
                   TENSORPACK_TP, disk, source});
  const int status = tp.wait();
  if (status == 77 || status == 127 || tp.output().starts_with("unshare:")) {
    GTEST_SKIP() << "no disk can be mounted here: " << tp.output();
  }
  EXPECT_EQ(status, 2);
  EXPECT_THAT(tp.output(), AllOf(HasSubstr("the disk of '" + disk), HasSubstr("is full: "),
                                 HasSubstr("are left. Free some, or name another directory")));
}

TEST_F(RunTest, ADamagedCacheIsMadeAgain) {
  const fs::path source = write("main.cpp", "int main() { return 3; }");
  run({source}, 3);
  const fs::path directory = program_of(source).parent_path();
  write_file_atomically(directory / "0.o.json", "{\"comm");
  write_file_atomically(directory / "program.json", "[]");
  run({source}, 3);
}

// A header that is a pipe: the compiler waits for what the test writes into it.
class PipedHeader {
 public:
  explicit PipedHeader(fs::path path) : path_(std::move(path)) {
    EXPECT_EQ(mkfifo(path_.c_str(), 0600), 0);
  }
  ~PipedHeader() { close(fd_); }
  PipedHeader(const PipedHeader&) = delete;
  PipedHeader& operator=(const PipedHeader&) = delete;

  void wait_for_compiler() { fd_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC); }
  void write_text(const std::string& text) {
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(std::exchange(fd_, -1));
  }

 private:
  fs::path path_;
  int fd_ = -1;
};

TEST_F(RunTest, AHeaderThatGoesWhileItIsCompiledIsNotTakenAsUnchanged) {
  const fs::path source = write("main.cpp", "#include \"answer.h\"\nint main() { return ANSWER; }");
  PipedHeader header(dir_ / "answer.h");
  const auto tp = start({source});
  header.wait_for_compiler();
  fs::remove(dir_ / "answer.h");
  header.write_text("#define ANSWER 11\n");
  EXPECT_EQ(tp->wait(), 11) << tp->output();
  write("answer.h", "#define ANSWER 12\n");
  run({source}, 12);
}

TEST_F(RunTest, AnObjectOfAPrecompiledHeaderThatWasReplacedMeanwhileIsCompiledAgain) {
  run({write("first.cpp", "int main() {}")});  // the precompiled header is there
  const fs::path source = write("main.cpp", "#include \"answer.h\"\nint main() { return ANSWER; }");
  const fs::path object = program_of(source).parent_path() / "0.o";
  PipedHeader header(dir_ / "answer.h");
  const auto tp = start({source});
  header.wait_for_compiler();
  fs::last_write_time(precompiled_header_of(source), fs::file_time_type::clock::now());
  const fs::path same = write("same.h", "#define ANSWER 11\n");
  fs::last_write_time(same, fs::last_write_time(same) - std::chrono::hours(1));
  fs::rename(same, dir_ / "answer.h");
  header.write_text("#define ANSWER 11\n");
  EXPECT_EQ(tp->wait(), 11) << tp->output();
  const auto made = fs::last_write_time(object);
  run({source}, 11);
  EXPECT_GT(fs::last_write_time(object), made);
}

// Says when it was started, and waits.
std::string waiting_program(int version) {
  return fmt::format(R"(
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>
int main() {{
  std::signal(SIGTERM, [](int) {{ std::_Exit(write(1, "ended {0}\n", 8) == 8 ? 0 : 1); }});
  std::puts("version {0}");
  std::fflush(stdout);
  for (;;) pause();
}}
)",
                     version);
}

TEST_F(RunTest, WatchStartsTheProgramAgainOnEverySave) {
  const fs::path source = write("watched.cpp", waiting_program(1));
  const auto tp = start({"--watch", source});
  ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
  write("watched.cpp", waiting_program(2));
  ASSERT_TRUE(tp->read_until("version 2")) << tp->output();
  EXPECT_LT(tp->output().find("ended 1"), tp->output().find("version 2"));

  write("watched.cpp", "int main() { return missing; }\n");
  ASSERT_TRUE(tp->read_until("the program goes on as it was")) << tp->output();
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("watched.cpp:1:"), Not(HasSubstr("ended 2"))));

  write("watched.cpp", waiting_program(3));
  ASSERT_TRUE(tp->read_until("version 3")) << tp->output();
  EXPECT_LT(tp->output().find("ended 2"), tp->output().find("version 3"));
  tp->send(SIGTERM);
  EXPECT_EQ(tp->wait(), 0) << "the program's status";
  EXPECT_THAT(tp->output(), HasSubstr("ended 3"));
}

// As under `ssh -t` and `xterm -e`, where the watch leads the session.
TEST_F(RunTest, WatchEndsWithItsTerminal) {
  const fs::path source = write("watched.cpp", waiting_program(1));
  int terminal = -1;
  const pid_t tp = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (tp == 0) {
    execl(TENSORPACK_TP, "tp", "run", "--watch", source.c_str(), nullptr);
    _exit(127);
  }
  std::string output;
  char byte = 0;
  while (output.find("version 1") == std::string::npos && read(terminal, &byte, 1) == 1) {
    output += byte;
  }
  ASSERT_THAT(output, HasSubstr("version 1"));
  close(terminal);
  auto end = std::async(std::launch::async, [tp] { return waitpid(tp, nullptr, 0); });
  const auto status = end.wait_for(std::chrono::minutes(1));
  if (status != std::future_status::ready) kill(tp, SIGKILL);
  EXPECT_EQ(status, std::future_status::ready) << "it outlives its terminal";
}

TEST_F(RunTest, TheProgramForADebuggerIsNamedWithWatchToo) {
  const auto tp = start({"-g", "--watch", write("main.cpp", "int main() {}")});
  ASSERT_TRUE(tp->read_until("tp run: ")) << tp->output();
  EXPECT_THAT(tp->output(), testing::StartsWith("tp run: for a debugger: "));
}

TEST_F(RunTest, WatchWaitsForTheRepairOfAProgramThatDoesNotCompile) {
  const fs::path source = write("watched.cpp", "int main() { return missing; }\n");
  const auto tp = start({"--watch", source});
  ASSERT_TRUE(tp->read_until("watched.cpp:1:")) << tp->output();
  write("watched.cpp", "int main() {}\n");
  ASSERT_TRUE(tp->read_until("ended with status 0")) << tp->output();
  tp->send(SIGINT);
  EXPECT_EQ(tp->wait(), 0);
}

TEST_F(RunTest, WatchEndsWhenAnOptionKeepsAllFromBeingCompiled) {
  const auto tp = start({"--watch", "--cxx=-fno-such-option", write("main.cpp", "int main() {}")});
  tp->read_until("waiting for a change");  // else until it ends
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("could not be precompiled in"),
                                  Not(HasSubstr("waiting for a change"))));
  tp->send(SIGINT);
  EXPECT_EQ(tp->wait(), 2);
}

TEST_F(RunTest, WatchLeavesTheProgramAloneWhenTheCacheCannotBeUsed) {
  const fs::path source = write("watched.cpp", waiting_program(1));
  const fs::path cache = program_of(source).parent_path();
  const auto tp = start({"--watch", source});
  ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
  fs::remove_all(cache);
  write_file_atomically(cache, "a file in its place");
  write("watched.cpp", waiting_program(2));
  ASSERT_TRUE(tp->read_until("the program goes on as it was")) << tp->output();
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("compiled files cannot be kept in '" + cache.string()),
                                  Not(HasSubstr("ended 1"))));

  fs::remove(cache);
  write("watched.cpp", waiting_program(3));
  ASSERT_TRUE(tp->read_until("version 3")) << tp->output();
  EXPECT_THAT(tp->output(), HasSubstr("ended 1"));
}

// Ignores SIGTERM.
std::string stubborn_program(int version) {
  return fmt::format(R"(
#include <csignal>
#include <cstdio>
#include <unistd.h>
int main() {{
  std::signal(SIGTERM, SIG_IGN);
  std::puts("version {0}");
  std::fflush(stdout);
  for (;;) pause();
}}
)",
                     version);
}

TEST_F(RunTest, WatchKillsAProgramThatOutlivesTheGrace) {
  const fs::path source = write("stubborn.cpp", stubborn_program(1));
  const auto tp = start({"--watch", "--grace", "0.2", source});
  ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
  write("stubborn.cpp", stubborn_program(2));
  ASSERT_TRUE(tp->read_until("version 2")) << tp->output();
  EXPECT_THAT(tp->output(), HasSubstr("the program did not end within 0.2 s. Killing it"));
  tp->send(SIGTERM);
  EXPECT_EQ(tp->wait(), 128 + SIGKILL);
}

TEST_F(RunTest, AnErrorOfTheWatchLeavesTheProgramTimeToSave) {
  const fs::path source = write("watched.cpp", waiting_program(1));
  run({write("main.cpp", "int main() {}")});  // the precompiled header is there
  // What it reports on a save cannot be written.
  ChildProcess tp(
      {"/bin/sh", "-c", "exec \"$0\" run --watch \"$1\" 2> /dev/full", TENSORPACK_TP, source});
  ASSERT_TRUE(tp.read_until("version 1")) << tp.output();
  write("watched.cpp", waiting_program(2));
  tp.wait();
  EXPECT_THAT(tp.output(), HasSubstr("ended 1"));
}

TEST_F(RunTest, CtrlCWhileTheHeaderIsPrecompiledEndsTheWatchWithoutAnError) {
  const fs::path source = write("main.cpp", "int main() {}");
  PipedHeader header(dir_ / "first.h");
  const ScopedEnv cache("XDG_CACHE_HOME", (dir_ / "cache").string());
  // As on a terminal, the signal goes to a group of processes.
  ChildProcess tp({"/bin/sh", "-c", "echo group=$$; exec setsid \"$0\" run --watch \"$@\"",
                   TENSORPACK_TP, "--cxx=-include", "--cxx=" + (dir_ / "first.h").string(),
                   source});
  header.wait_for_compiler();
  ASSERT_TRUE(tp.read_until("once ... ")) << tp.output();
  const pid_t group = std::stoi(tp.output().substr(tp.output().find("group=") + 6));
  kill(-group, SIGINT);
  EXPECT_EQ(tp.wait(), 128 + SIGINT);
  EXPECT_THAT(tp.output(), Not(HasSubstr("could not be precompiled")));
}

// Prints VERSION of a header, and waits.
fs::path write_program_with_header(const fs::path& directory) {
  write_file_atomically(directory / "main.cpp", R"(
#include <cstdio>
#include <unistd.h>
#include "version.h"
int main() { std::printf("version %d\n", VERSION); std::fflush(stdout); for (;;) pause(); }
)");
  return directory / "main.cpp";
}

TEST_F(RunTest, WatchSeesEverySaveOfAHeaderThatDoesNotCompile) {
  write("version.h", "#define VERSION 1\n");
  const auto tp = start({"--watch", write_program_with_header(dir_.path())});
  ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
  write("version.h", "#define VERSION first_mistake\n");
  ASSERT_TRUE(tp->read_until("first_mistake")) << tp->output();
  ASSERT_TRUE(tp->read_until("goes on as it was")) << tp->output();
  write("version.h", "#define VERSION second_mistake\n");
  ASSERT_TRUE(tp->read_until("second_mistake")) << tp->output();
  write("version.h", "#define VERSION 2\n");
  ASSERT_TRUE(tp->read_until("version 2")) << tp->output();
}

TEST_F(RunTest, WatchSeesTheRepairOfAHeaderThatNeverCompiled) {
  write("version.h", "#define VERSION mistake\n");
  const auto tp = start({"--watch", write_program_with_header(dir_.path())});
  ASSERT_TRUE(tp->read_until("mistake")) << tp->output();
  write("version.h", "#define VERSION 1\n");
  ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
}

TEST_F(RunTest, WatchSeesHeadersThatGoAndCome) {
  const auto tp = start({"--watch", write_program_with_header(dir_.path())});
  ASSERT_TRUE(tp->read_until("version.h")) << tp->output();  // it is missing
  ASSERT_TRUE(tp->read_until("waiting for a change")) << tp->output();
  write("version.h", "#define VERSION 1\n");
  ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
  const size_t before = tp->output().size();
  fs::rename(dir_ / "version.h", dir_ / "other.h");
  ASSERT_TRUE(tp->read_until("goes on as it was", before)) << tp->output();
  std::string source = read_file(dir_ / "main.cpp");
  source.replace(source.find("version.h"), 9, "other.h");
  write("other.h", "#define VERSION 2\n");
  write("main.cpp", source);
  ASSERT_TRUE(tp->read_until("version 2")) << tp->output();
}

TEST_F(RunTest, WatchSeesAMissingHeaderAppearWhereverItIsLookedFor) {
  for (const char* directory : {"beside", "include"}) fs::create_directory(dir_ / directory);
  write("include/outer.h", "#include \"inner.h\"\n");
  const std::string options = "--cxx=-I" + (dir_ / "include").string();
  const std::string text = "#include <cstdio>\nint main() { std::puts(\"version 1\"); }\n";
  for (const auto& [include, appears] :
       std::vector<std::pair<std::string, std::string>>{{"\"beside.h\"", "beside/beside.h"},
                                                        {"<searched.h>", "include/searched.h"},
                                                        {"<outer.h>", "include/inner.h"}}) {
    const fs::path source = write("beside/main.cpp", "#include " + include + "\n" + text);
    const auto tp = start({"--watch", options, source});
    ASSERT_TRUE(tp->read_until("waiting for a change")) << tp->output();
    write(appears, "");
    ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
  }
}

TEST_F(RunTest, ARequestToSaveDoesNotEndTheWatch) {
  const auto program = [](int version) {
    return fmt::format(R"(
#include <csignal>
#include <cstdio>
#include <unistd.h>
int main() {{
  std::signal(SIGUSR1, [](int) {{ if (write(1, "saved {0}\n", 8) != 8) std::abort(); }});
  std::puts("version {0}");
  std::fflush(stdout);
  for (;;) pause();
}}
)",
                       version);
  };
  const fs::path source = write("main.cpp", "#include <cstdlib>\n" + program(1));
  const auto tp = start({"--watch", source});
  ASSERT_TRUE(tp->read_until("version 1")) << tp->output();
  tp->send(SIGUSR1);
  ASSERT_TRUE(tp->read_until("saved 1")) << tp->output();
  write("main.cpp", "#include <cstdlib>\n" + program(2));
  ASSERT_TRUE(tp->read_until("version 2")) << tp->output();
}

TEST_F(RunTest, ATrainingThatIsWatchedGoesOnWhereItWas) {
  const auto training = [&](const std::string& rate) {
    return fmt::format(R"(
#include <tensorpack/tensorpack.h>
using namespace tensorpack;
int main() {{
  return run_main([] {{
    set_logger_dir("{}", LogDirAction::kKeep);
    SimpleTrainer trainer;
    TrainConfig config{{
        .model = Model{{.inputs = {{{{"x", {{-1, 1}}}}}},
                        .build_graph = [](Tensor x) {{ return FullyConnected("fc", x, {{.units = 1}}).square().mean(); }},
                        .optimizer = SGD({{.lr = {}}})}},
        .dataflow = FromList({{{{torch::ones({{1}})}}}}) | repeat(-1) | batch(1),
        .callbacks = {{ModelSaver(), CallbackFactory({{.before_train = [](Callback& self) {{
                        fmt::print("begins at step {{}}.\n", self.trainer().global_step());
                        std::fflush(stdout);
                      }}}})}},
        .steps_per_epoch = 100,
        .max_epoch = 1'000'000}};
    launch_train_with_config(AutoResumeTrainConfig(std::move(config)), trainer);
  }});
}}
)",
                       (dir_ / "log").string(), rate);
  };
  const fs::path source = write("train.cpp", training("0.1"));
  const auto tp = start({"--watch", source});
  ASSERT_TRUE(tp->read_until("begins at step 0.")) << tp->output();
  ASSERT_TRUE(tp->read_until("Model saved")) << tp->output();
  write("train.cpp", training("0.2"));
  ASSERT_TRUE(tp->read_until("Ending the program")) << tp->output();
  const size_t ending = tp->output().find("Ending the program");
  ASSERT_TRUE(tp->read_until("begins at step ", ending)) << tp->output();
  const size_t at = tp->output().find("begins at step ", ending);
  ASSERT_TRUE(tp->read_until(".", at)) << tp->output();
  EXPECT_GE(std::stoi(tp->output().substr(at + 15)), 100) << tp->output();
  tp->send(SIGTERM);
  tp->wait();
}

}  // namespace
}  // namespace tensorpack
