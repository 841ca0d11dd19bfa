// SPDX-License-Identifier: Apache-2.0
// What a run gives back.
//
// Note [Fetching from a device]
// Waiting for a value on CUDA would leave the device without work until the next step is issued. So
// a run returns while its values are on their way: they are copied to pinned memory on a stream of
// their own, behind the run and beside the next one. Whoever reads them waits for that copy alone.
#pragma once

#include <memory>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace c10 {
struct Event;
}

namespace tensorpack {

/// The values of one run, on the host, in the order they were asked for. Reading one waits until it
/// has arrived. Copies share the values: keep one and read it a step later, and nothing waits.
class FetchedValues {
 public:
  FetchedValues() = default;
  using Arrivals = std::vector<std::shared_ptr<const c10::Event>>;
  /// Values that are there, or are once all of `arrivals` have happened.
  explicit FetchedValues(std::vector<at::Tensor> values, Arrivals arrivals = {});

  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  const at::Tensor& operator[](size_t i) const { return get()[i]; }
  auto begin() const { return get().begin(); }
  auto end() const { return get().end(); }
  /// All of them. Waits, as every reading does.
  const std::vector<at::Tensor>& get() const;

  /// Some of them, without waiting.
  FetchedValues slice(size_t begin, size_t end) const;

 private:
  std::vector<at::Tensor> values_;
  Arrivals arrivals_;  // one of each device
};

}  // namespace tensorpack
