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
  for (const auto& page : fs::directory_iterator(root / "docs/tutorial")) {
    if (page.path().extension() != ".md") continue;
    const std::string text = text_of(page.path());
    const std::regex cited("From `([^`]+)`:\n\n```cpp\n([^`]*)```");
    for (auto i = std::sregex_iterator(text.begin(), text.end(), cited);
         i != std::sregex_iterator(); ++i) {
      ++blocks;
      EXPECT_NE(text_of(root / (*i)[1].str()).find((*i)[2].str()), std::string::npos)
          << page.path() << " cites from " << (*i)[1] << " what is not there:\n"
          << (*i)[2];
    }
  }
  EXPECT_GE(blocks, 8);
}

TEST(DocsTest, TheProgramOnTheFrontPageIsAnExample) {
  const fs::path root = TENSORPACK_SOURCE_DIR;
  const std::string page = text_of(root / "README.md");
  const size_t begin = page.find("```cpp\n") + 7;
  const std::string code = page.substr(begin, page.find("```", begin) - begin);
  EXPECT_THAT(text_of(root / "examples/basics/readme.cpp"), testing::HasSubstr(code));
}

}  // namespace
}  // namespace tensorpack
