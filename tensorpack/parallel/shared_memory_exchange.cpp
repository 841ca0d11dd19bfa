// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tensorpack/parallel/scaled_sum.h"
#include "tensorpack/parallel/tower_exchange.h"
#include "tensorpack/parallel/tower_group.h"

namespace tensorpack {
namespace {

// Shares begin at multiples of a cache line.
constexpr int64_t kAlignment = 64;

class SharedMemoryExchange final : public TowerGroup {
 public:
  explicit SharedMemoryExchange(const TowerExchangeOptions& options)
      : TowerGroup(options.towers),
        scale_(options.average ? 1.0 / static_cast<double>(options.towers) : 1.0) {}

 protected:
  void deliver(Bucket& bucket, size_t index) override {
    int64_t total = 0;
    for (const Layout& layout : bucket.layouts) total += layout.elements;
    const auto [begin, end] = share_of(index, total);
    int64_t offset = 0;
    for (size_t i = 0; i < bucket.layouts.size(); ++i) {
      const int64_t size = bucket.layouts[i].elements;
      const int64_t first = std::clamp<int64_t>(begin - offset, 0, size);
      const int64_t last = std::clamp<int64_t>(end - offset, 0, size);
      if (first < last) add_up(bucket, i, first, last);
      offset += size;
    }
    wait_for_delivery(bucket);
  }

 private:
  std::pair<int64_t, int64_t> share_of(size_t index, int64_t total) const {
    const auto count = static_cast<int64_t>(towers());
    const int64_t size = (total / count + kAlignment) / kAlignment * kAlignment;
    const auto begin = static_cast<int64_t>(index) * size;
    return {std::min(begin, total), std::min(begin + size, total)};
  }

  // Elements `first` to `last` of tensor number i, for all towers.
  void add_up(Bucket& bucket, size_t i, int64_t first, int64_t last) {
    const auto element = [&](const at::Tensor& tensor) {
      return static_cast<char*>(tensor.data_ptr()) +
             first * static_cast<int64_t>(tensor.element_size());
    };
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (size_t tower = 0; tower < towers(); ++tower) {
      inputs.push_back(element(bucket.given[tower][i]));
      outputs.push_back(element(bucket.averages[tower][i]));
    }
    scaled_sum(bucket.given[0][i].scalar_type(), inputs, outputs, last - first, scale_);
  }

  double scale_;
};

}  // namespace

std::shared_ptr<ExchangeGroup> make_shared_memory_exchange(const TowerExchangeOptions& options) {
  return std::make_shared<SharedMemoryExchange>(options);
}

}  // namespace tensorpack
