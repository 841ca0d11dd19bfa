// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace tensorpack {

/// A file of a new project, with @NAME@ and @PLACE@ where the project's are to stand.
struct ProjectFile {
  std::string_view name;
  std::string_view text;
};

/// Those in programs/tp/project.
std::span<const ProjectFile> project_files();

}  // namespace tensorpack
