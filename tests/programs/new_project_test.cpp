// SPDX-License-Identifier: Apache-2.0
// `tp new`: what it makes is built and tested as its README says.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NewProjectTest : public testing::Test {
 protected:
  static std::string run(const std::vector<std::string>& words, int status = 0) {
    ChildProcess child(words);
    EXPECT_EQ(child.wait(), status) << child.output();
    return child.output();
  }
  static std::string in_shell(const fs::path& directory, const std::string& script) {
    return run({"/bin/sh", "-c", "set -e; cd '" + directory.string() + "'; " + script});
  }

  TempDir dir_;
};

TEST_F(NewProjectTest, IsBuiltAndTestedWithCMake) {
  const fs::path project = dir_ / "digits";
  EXPECT_THAT(run({TENSORPACK_TP, "new", project}), HasSubstr("tp run train.cpp"));
  in_shell(project,
           "cmake --preset release; cmake --build --preset release; ctest --preset release");
  EXPECT_TRUE(fs::exists(project / "build/release/train"));
  EXPECT_THAT(read_file(project / ".gitignore"), HasSubstr("/build/"));
}

TEST_F(NewProjectTest, SaysThatItsTestNeedsGoogleTest) {
  const fs::path project = dir_ / "digits";
  run({TENSORPACK_TP, "new", project});
  const std::string output =
      in_shell(project,
               "cmake --preset release -DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON; "
               "ninja -C build/release -n");
  EXPECT_THAT(output, AllOf(HasSubstr("GoogleTest was not found, so the test is left out"),
                            HasSubstr("libgtest-dev"), HasSubstr("executable train"),
                            Not(HasSubstr("model_test"))));
}

TEST_F(NewProjectTest, IsMadeInAnEmptyDirectoryAlone) {
  fs::create_directory(dir_ / "here");
  run({TENSORPACK_TP, "new", dir_ / "here"});
  const std::string readme = read_file(dir_ / "here" / "README.md");
  EXPECT_THAT(run({TENSORPACK_TP, "new", dir_ / "here"}, 2),
              AllOf(HasSubstr("[tp new]"), HasSubstr("is not an empty directory")));
  EXPECT_EQ(read_file(dir_ / "here" / "README.md"), readme);
  std::ofstream(dir_ / "file") << "text";
  EXPECT_THAT(run({TENSORPACK_TP, "new", dir_ / "file"}, 2), HasSubstr("not an empty directory"));
}

TEST_F(NewProjectTest, TheDirectoryMayEndInASlashOrBeTheCurrentOne) {
  run({TENSORPACK_TP, "new", (dir_ / "digits").string() + "/"});
  EXPECT_THAT(read_file(dir_ / "digits" / "CMakeLists.txt"), HasSubstr("project(digits"));
  fs::create_directory(dir_ / "here");
  in_shell(dir_ / "here", std::string("'") + TENSORPACK_TP + "' new .");
  EXPECT_THAT(read_file(dir_ / "here" / "CMakeLists.txt"), HasSubstr("project(here"));
}

TEST_F(NewProjectTest, BadNamesAreErrors) {
  EXPECT_THAT(run({TENSORPACK_TP, "new", dir_ / "two words"}, 2),
              HasSubstr("'two words' is not a name"));
  EXPECT_THAT(run({TENSORPACK_TP, "new"}, 2), HasSubstr("name is required"));
  EXPECT_TRUE(fs::is_empty(dir_.path()));
}

}  // namespace
}  // namespace tensorpack
