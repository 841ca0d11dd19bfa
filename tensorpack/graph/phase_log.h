// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "tensorpack/utils/timer.h"

namespace tensorpack {

/// Logs, for the developer, how long its scope took, one of those that make an op ready, and how
/// much memory of the device has been in use at most: "Op 'train': record took 2.13 s ...".
class [[nodiscard]] PhaseLog {
 public:
  PhaseLog(std::string op_name, c10::Device device, const char* phase)
      : op_name_(std::move(op_name)), device_(device), phase_(phase) {}
  ~PhaseLog();
  PhaseLog(const PhaseLog&) = delete;
  PhaseLog& operator=(const PhaseLog&) = delete;

 private:
  std::string op_name_;
  c10::Device device_;
  const char* phase_;
  Timer timer_;
};

}  // namespace tensorpack
