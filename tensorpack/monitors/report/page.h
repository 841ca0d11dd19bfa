// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tensorpack::report {

/// The page with its style and scripts, made of the files beside this one when the library is
/// built. Without data it asks the server it came from (`tp watch`).
std::string_view page();

/// Where in the page the data of a run goes: right behind this.
inline constexpr std::string_view kDataBegin = R"(<script type="application/json" id="data">)";
inline constexpr std::string_view kDataEnd = "</script>";

/// The data of a page that has some; else empty.
inline std::string_view data_in_page(std::string_view page) {
  const size_t begin = page.find(kDataBegin);
  if (begin == std::string_view::npos) return {};
  const size_t end = page.find(kDataEnd, begin);
  if (end == std::string_view::npos) return {};
  return page.substr(begin + kDataBegin.size(), end - begin - kDataBegin.size());
}

}  // namespace tensorpack::report
