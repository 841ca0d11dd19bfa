// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/utils/detail/tensor_writes.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

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

/// For flows that hand out tensors which are kept for a while: one that is written to, and yielded
/// again, changes the datapoint that it was before. Writes of operators are noticed, those through
/// pointers are not.
class ReuseWatch {
 public:
  /// `where` names the flow in errors. So many datapoints may be kept at a time, apart from the
  /// newest.
  ReuseWatch(std::string where, int64_t kept) : where_(std::move(where)), kept_(kept) {}

  /// Called with every datapoint that comes. Throws Error if it changes one that may be kept.
  void look(const DataPoint& point);

  /// Nothing is kept any more.
  void forget() { seen_.clear(); }

 private:
  // Memory as it was when it was yielded.
  struct Seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // keeps its address from being used again
    size_t bytes = 0;
    int64_t version = 0;
    int64_t number = 0;
    std::optional<uint64_t> sum = {};
  };

  bool is_rewritten(const at::Tensor& tensor, const Seen& earlier) const;
  void drop_old();

  std::string where_;
  int64_t kept_;
  int64_t number_ = 0;
  std::unordered_map<const void*, Seen> seen_;  // by where it begins
  size_t most_ = 64;                            // entries, before old ones are dropped
};

}  // namespace tensorpack::detail
