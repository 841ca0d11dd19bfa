// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/dataflow/rng.h"

namespace tensorpack::detail {

/// The random numbers of a stage, others in each pass. It is seeded when the first of a pass is
/// drawn: see Note [When seeds are settled].
class PassRng {
 public:
  explicit PassRng(std::optional<uint64_t> seed) : seed_(seed) {}

  void start(int64_t pass) {
    pass_ = pass;
    rng_.reset();
  }

  Rng* operator->() { return &**this; }
  Rng& operator*() {
    if (!rng_) rng_.emplace(seed_.value(), pass_);
    return *rng_;
  }

 private:
  StageSeed seed_;
  int64_t pass_ = 0;
  std::optional<Rng> rng_;
};

}  // namespace tensorpack::detail
