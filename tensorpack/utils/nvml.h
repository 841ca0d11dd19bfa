// SPDX-License-Identifier: Apache-2.0
// What NVIDIA's driver tells of its devices, by a library that is opened when it is needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tensorpack {

/// NVML, opened. Devices are numbered as in $CUDA_VISIBLE_DEVICES, if that has numbers.
class Nvml {
 public:
  /// nullptr when there is no driver, or no device.
  static std::unique_ptr<Nvml> open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  int devices() const { return static_cast<int>(handles_.size()); }
  /// The share of the last moments in which a kernel ran, in percent. Throws Error.
  double utilization(int device) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  void check(int status, const char* what) const;

  std::unique_ptr<Functions> functions_;
  std::vector<void*> handles_;
};

}  // namespace tensorpack
