// SPDX-License-Identifier: Apache-2.0
// Everything that reads files which others may have damaged or made.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tensorpack {

/// The names of the readers; the folders of `corpus` are called like them.
std::vector<std::string> reader_names();

/// Has the reader called `name` read a file of these bytes. It may refuse it by an Error, which
/// ends here; anything else it throws is thrown on.
void read_by(std::string_view name, std::string_view bytes);

}  // namespace tensorpack
