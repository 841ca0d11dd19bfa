// SPDX-License-Identifier: Apache-2.0
// What the headers of a folder declare: a list that a test keeps by hand can be compared with it.
#pragma once

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "tensorpack/utils/fs.h"

namespace tensorpack {

/// The classes in the headers of `folder` that derive from `base`, directly or not.
inline std::set<std::string> classes_derived_from(const std::string& base,
                                                  const std::filesystem::path& folder) {
  static const std::regex pattern(R"(\nclass (\w+)(?: final)? : public (\w+))");
  std::multimap<std::string, std::string> derived;  // by their bases
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    const std::string text = read_file(entry.path());
    for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end;
         ++match) {
      derived.emplace((*match)[2], (*match)[1]);
    }
  }
  std::set<std::string> classes = {base};
  for (size_t size = 0; size != classes.size();) {
    size = classes.size();
    for (const auto& [from, name] : derived) {
      if (classes.contains(from)) classes.insert(name);
    }
  }
  classes.erase(base);
  return classes;
}

}  // namespace tensorpack
