// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

/// Counts the writes of operators to a tensor; those through pointers leave no trace.
inline int64_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? int64_t{tensor._version()} : 0;
}

/// For flows that hand out the same tensors in every pass: a function behind them that writes to
/// one changes the data, a little more in each pass. Tells of it when the next pass begins.
class WriteWatch {
 public:
  /// Called when a pass begins, with all tensors of the flow.
  template <typename Points>
  void look(const char* flow, const Points& points) {
    int64_t versions = 0;
    for (const auto& point : points) {
      for (const at::Tensor& tensor : point) versions += version_of(tensor);
    }
    if (last_ && *last_ != versions) warn(flow);
    last_ = versions;
  }

 private:
  static void warn(const char* flow);

  std::optional<int64_t> last_;
};

}  // namespace tensorpack::detail
