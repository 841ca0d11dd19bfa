// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// Datapoints made of the records of a file, one of each: passes and sizes are those of the
/// records.
template <typename Records>
class DecodedRecords : public DataFlow {
 public:
  void start(int64_t pass) final { records_.start(pass); }
  int64_t skip(int64_t count) final { return records_.skip(count); }
  std::optional<int64_t> size() const final { return records_.size(); }

 protected:
  explicit DecodedRecords(Records records) : records_(std::move(records)) {}

  Records records_;
};

}  // namespace tensorpack::detail
