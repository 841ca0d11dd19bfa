// SPDX-License-Identifier: Apache-2.0
// Whether tensors that are kept for a while are written to meanwhile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

/// Counts the writes of operators to a tensor; those through pointers leave no trace.
inline int64_t version_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_inference() ? int64_t{tensor._version()} : 0;
}

/// A write to a tensor counts for all views of its storage: of a part of it, such as a row, the
/// version alone does not tell whether it was written to.
bool is_all_of_its_storage(const at::Tensor& tensor);

/// Of a datapoint that is still needed.
[[noreturn]] void throw_written_to(const std::string& where, size_t component);

/// Datapoints that wait until others have come, as those of several towers do.
class HeldDatapoints {
 public:
  void add(const std::vector<at::Tensor>& datapoint);

  /// When all have come. Throws Error if one was written to since it was added: it is another
  /// datapoint now.
  void check(const std::string& where) const;

 private:
  struct Held {
    at::Tensor tensor;
    int64_t version;
    size_t component;
  };

  bool is_rewritten(const Held& held) const;

  std::vector<Held> held_;
};

}  // namespace tensorpack::detail
