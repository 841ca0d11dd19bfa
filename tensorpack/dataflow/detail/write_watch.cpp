// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/write_watch.h"

#include <algorithm>

#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::detail {
namespace {

uint64_t sum_of(const void* data, size_t bytes) {
  return xxh64({static_cast<const char*>(data), bytes});
}

}  // namespace

void WriteWatch::warn(const char* flow) {
  logging::warning_once(
      "[{}] its tensors were changed in place during the pass, and the next one begins with what "
      "they are now. If a function behind it does that, have it make new ones: p[0] = p[0] / 255, "
      "not p[0].div_(255).",
      flow);
}

void ReuseWatch::look(const DataPoint& point) {
  for (size_t i = 0; i < point.size(); ++i) {
    const at::Tensor& tensor = point[i];
    if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) continue;
    const int64_t version = version_of(tensor);
    Seen now{.storage = tensor.storage().getWeakStorageImpl(),
             .bytes = tensor.nbytes(),
             .version = version,
             .number = number_};
    const auto [found, is_new] = seen_.try_emplace(tensor.data_ptr(), now);
    if (is_new) continue;
    Seen& earlier = found->second;
    const bool is_same_memory = earlier.storage == now.storage;
    // A component may come twice in a datapoint.
    if (is_same_memory && earlier.version != version && earlier.number < number_) {
      const bool is_kept = number_ - earlier.number <= kept_;
      if (is_kept && is_rewritten(tensor, earlier)) throw_written_to(where_, i);
      if (tensor.is_cpu() && !is_all_of_its_storage(tensor) &&
          tensor.is_non_overlapping_and_dense()) {
        now.sum = sum_of(tensor.data_ptr(), tensor.nbytes());
      }
    }
    earlier = std::move(now);
  }
  ++number_;
  if (seen_.size() > most_) drop_old();
}

// A write to a tensor counts for all views of its storage. Of a part, such as a row of a buffer,
// the values tell, from the first write to the buffer on.
bool ReuseWatch::is_rewritten(const at::Tensor& tensor, const Seen& earlier) const {
  if (is_all_of_its_storage(tensor)) return true;
  return earlier.sum && earlier.bytes <= tensor.nbytes() && tensor.is_cpu() &&
         tensor.is_non_overlapping_and_dense() &&
         sum_of(tensor.data_ptr(), earlier.bytes) != *earlier.sum;
}

void ReuseWatch::drop_old() {
  std::erase_if(seen_, [&](const auto& entry) {
    return number_ - entry.second.number > kept_ || entry.second.storage.expired();
  });
  most_ = std::max<size_t>(64, 2 * seen_.size());
}

}  // namespace tensorpack::detail
