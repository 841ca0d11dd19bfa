// SPDX-License-Identifier: Apache-2.0
// What several tests of this folder share.
#pragma once

#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tensorpack/utils/console.h"
#include "tests/support/capture.h"

namespace tensorpack {

/// A console whose output is kept in memory.
class FakeConsole {
 public:
  explicit FakeConsole(bool is_terminal)
      : out_(::open_memstream(&data_, &size_)), console_(out_, is_terminal) {}
  ~FakeConsole() {
    std::fclose(out_);
    std::free(data_);
  }
  FakeConsole(const FakeConsole&) = delete;
  FakeConsole& operator=(const FakeConsole&) = delete;

  Console& console() { return console_; }

  std::string text() const {
    std::fflush(out_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* out_;
  Console console_;
};

}  // namespace tensorpack
