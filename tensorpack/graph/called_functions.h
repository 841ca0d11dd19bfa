// SPDX-License-Identifier: Apache-2.0
// Which libtorch function the user called, when an operator inside of it is to blame.
#pragma once

#include <cstdint>
#include <string>

namespace tensorpack {

/// While it lives, notes the functions of libtorch that this thread is in.
class [[nodiscard]] CalledFunctions {
 public:
  CalledFunctions();
  ~CalledFunctions();
  CalledFunctions(const CalledFunctions&) = delete;
  CalledFunctions& operator=(const CalledFunctions&) = delete;

  /// The outermost one: "aten::one_hot" while that reads a value; "" outside of all.
  static std::string outermost();

 private:
  uint64_t handle_;
};

}  // namespace tensorpack
