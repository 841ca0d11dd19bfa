// SPDX-License-Identifier: Apache-2.0
// The code in the tutorials is code that compiles: a copy of what is in the file they name.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(DocsTest, CodeOfTutorialsIsACopyOfCompiledCode) {
  const fs::path root = TENSORPACK_SOURCE_DIR;
  int blocks = 0;
  size_t fences = 0;
  for (const auto& page : fs::directory_iterator(root / "docs/tutorial")) {
    if (page.path().extension() != ".md") continue;
    const std::string text = text_of(page.path());
    for (size_t at = text.find("```cpp"); at != std::string::npos;
         at = text.find("```cpp", at + 1)) {
      ++fences;
    }
    const std::regex cited("From `([^`]+)`:\n\n```cpp\n([^`]*)```");
    for (auto i = std::sregex_iterator(text.begin(), text.end(), cited);
         i != std::sregex_iterator(); ++i) {
      ++blocks;
      EXPECT_NE(text_of(root / (*i)[1].str()).find((*i)[2].str()), std::string::npos)
          << page.path() << " cites from " << (*i)[1] << " what is not there:\n"
          << (*i)[2];
    }
  }
  EXPECT_EQ(blocks, fences) << "some code does not say which file it is from";
}

TEST(DocsTest, TheCodeOnTheFrontPageIsOfExamples) {
  const fs::path root = TENSORPACK_SOURCE_DIR;
  const std::string page = text_of(root / "README.md");
  const std::string examples =
      text_of(root / "examples/basics/readme.cpp") + text_of(root / "examples/basics/devices.cpp");
  const std::string fence = "```cpp\n";
  int blocks = 0;
  for (size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at + 1)) {
    const size_t begin = at + fence.size();
    EXPECT_THAT(examples, testing::HasSubstr(page.substr(begin, page.find("```", begin) - begin)));
    ++blocks;
  }
  EXPECT_EQ(blocks, 3);
}

}  // namespace
}  // namespace tensorpack
