// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/memory_use.h"

#include <algorithm>

namespace tensorpack {

MemoryUse::MemoryUse(const Trace& trace) {
  const auto count = static_cast<int32_t>(trace.nodes.size());
  for (const Value& value : trace.values) {
    lives_.resize(std::max(lives_.size(), static_cast<size_t>(value.storage) + 1));
  }
  std::vector<char> is_kept(lives_.size(), 0);  // by others
  for (const Value& value : trace.values) {
    Life& life = lives_[value.storage];
    is_kept[value.storage] |= static_cast<char>(value.kind != ValueKind::kComputed);
    if (value.producer < 0) continue;
    life.bytes = std::max(life.bytes, value.storage_bytes);
    life.begin = life.begin < 0 ? value.producer : std::min(life.begin, value.producer);
    life.end = std::max(life.end, value.producer);
  }
  for (int32_t i = 0; i < count; ++i) {
    trace.nodes[i].for_each_argument([&](ValueId id) {
      Life& life = lives_[trace.values[id].storage];
      life.end = std::max(life.end, i);
    });
  }
  for (const auto& [name, id] : trace.outputs) lives_[trace.values[id].storage].end = count - 1;

  std::vector<int64_t> change(static_cast<size_t>(count) + 1, 0);
  for (size_t storage = 0; storage < lives_.size(); ++storage) {
    Life& life = lives_[storage];
    if (is_kept[storage] || life.begin < 0) life.bytes = 0;
    if (life.bytes == 0) continue;
    change[life.begin] += life.bytes;
    change[life.end + 1] -= life.bytes;
  }
  int64_t held = 0;
  for (int32_t i = 0; i < count; ++i) {
    held += change[i];
    if (held <= peak_) continue;
    peak_ = held;
    peak_position_ = i;
  }
}

}  // namespace tensorpack
