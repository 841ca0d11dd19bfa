// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/fetched_values.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include "tensorpack/utils/wait_for_device.h"

namespace tensorpack {

FetchedValues::FetchedValues(std::vector<at::Tensor> values, Arrivals arrivals)
    : values_(std::move(values)), arrivals_(std::move(arrivals)) {}

const std::vector<at::Tensor>& FetchedValues::get() const {
  for (const auto& arrival : arrivals_) wait_for(*arrival);
  return values_;
}

FetchedValues FetchedValues::slice(size_t begin, size_t end) const {
  const auto first = values_.begin();
  return FetchedValues(
      {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)},
      arrivals_);
}

}  // namespace tensorpack
