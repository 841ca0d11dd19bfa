// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/detail/tensor_writes.h"

#include <algorithm>

#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

bool is_all_of_its_storage(const at::Tensor& tensor) {
  return tensor.nbytes() == tensor.storage().nbytes();
}

void throw_written_to(const std::string& where, size_t component) {
  throw make_error(where,
                   "component {} was written to after it was yielded, and is yielded again: what "
                   "keeps the first datapoint, as a queue, shuffle() and several towers do, would "
                   "have the second one in its place. Make a new tensor for every datapoint, or "
                   "yield its clone().",
                   component);
}

void HeldDatapoints::add(const std::vector<at::Tensor>& datapoint) {
  for (size_t i = 0; i < datapoint.size(); ++i) {
    const at::Tensor& tensor = datapoint[i];
    if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) continue;
    held_.push_back({tensor, version_of(tensor), i});
  }
}

void HeldDatapoints::check(const std::string& where) const {
  for (const Held& held : held_) {
    if (is_rewritten(held)) throw_written_to(where, held.component);
  }
}

// Of a part of its storage, that it was yielded again after the write tells.
bool HeldDatapoints::is_rewritten(const Held& held) const {
  if (version_of(held.tensor) == held.version) return false;
  return is_all_of_its_storage(held.tensor) ||
         std::any_of(held_.begin(), held_.end(), [&](const Held& other) {
           return other.version > held.version && other.tensor.data_ptr() == held.tensor.data_ptr();
         });
}

}  // namespace tensorpack::detail
