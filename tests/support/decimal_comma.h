// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <locale>
#include <string>

#include "tensorpack/utils/fs.h"

namespace tensorpack {

/// While it lives, numbers have a decimal comma, in C and in C++, as after `setlocale(LC_ALL, "")`
/// and `std::locale::global(std::locale(""))` in Germany. The locale is a copy of glibc's C.utf8
/// with another LC_NUMERIC, so that none need be installed.
class DecimalComma {
 public:
  DecimalComma() {
    const char* before = std::getenv("LOCPATH");
    if (before != nullptr) path_before_ = before;
    if (!make_locale()) return;
    setenv("LOCPATH", dir_.path().c_str(), 1);
    try {
      std::locale::global(std::locale(kName));
    } catch (const std::runtime_error&) {
      return;  // another libc
    }
    is_there_ = std::strcmp(std::localeconv()->decimal_point, ",") == 0;
  }

  ~DecimalComma() {
    std::locale::global(std::locale::classic());
    path_before_.empty() ? unsetenv("LOCPATH") : setenv("LOCPATH", path_before_.c_str(), 1);
  }
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;

  /// False where the locale cannot be made: skip the test.
  bool is_there() const { return is_there_; }

 private:
  static constexpr const char* kName = "decimal_comma.utf8";

  // Below a table of offsets, which says where it begins, LC_NUMERIC has points as texts and as
  // wide characters, and no others.
  bool make_locale() const {
    namespace fs = std::filesystem;
    const fs::path model = "/usr/lib/locale/C.utf8";
    if (!fs::exists(model / "LC_NUMERIC")) return false;
    fs::copy(model, dir_ / kName, fs::copy_options::recursive);
    std::string numeric = read_file(model / "LC_NUMERIC");
    uint32_t begin = 0;
    std::memcpy(&begin, numeric.data() + 2 * sizeof(begin), sizeof(begin));
    for (size_t i = begin; i < numeric.size(); ++i) {
      if (numeric[i] == '.') numeric[i] = ',';
    }
    write_file_atomically(dir_ / kName / "LC_NUMERIC", numeric);
    return true;
  }

  TempDir dir_;
  std::string path_before_;
  bool is_there_ = false;
};

/// Runs `f` under a decimal comma, or skips the test and says so.
#define TP_UNDER_DECIMAL_COMMA_OR_SKIP(comma) \
  const DecimalComma comma;                   \
  if (!comma.is_there()) GTEST_SKIP() << "no locale with a decimal comma can be made here"

}  // namespace tensorpack
