// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/scaled_sum.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// A block stays in the cache while everybody's part is added and the sum is handed out. Its size is
// a constant so that the compiler makes vector instructions of the loops.
constexpr int64_t kBlock = 1024;

template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T>
class BlockSum {
 public:
  void set(const T* input, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sum_[i] = static_cast<Accumulator<T>>(input[i]);
  }
  void add(const T* input, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sum_[i] += static_cast<Accumulator<T>>(input[i]);
  }
  void scale(Accumulator<T> factor) {
    for (Accumulator<T>& value : sum_) value *= factor;
  }
  void copy_to(T* output, int64_t count) const {
    for (int64_t i = 0; i < count; ++i) output[i] = static_cast<T>(sum_[i]);
  }

 private:
  std::array<Accumulator<T>, kBlock> sum_ = {};
};

template <typename T>
void scaled_sum_of(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                   int64_t count, double scale) {
  BlockSum<T> block;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t size = std::min(kBlock, count - begin);
    block.set(static_cast<const T*>(inputs[0]) + begin, size);
    for (size_t k = 1; k < inputs.size(); ++k) {
      block.add(static_cast<const T*>(inputs[k]) + begin, size);
    }
    if (scale != 1) block.scale(static_cast<Accumulator<T>>(scale));
    for (void* output : outputs) block.copy_to(static_cast<T*>(output) + begin, size);
  }
}

}  // namespace

void scaled_sum(c10::ScalarType type, const std::vector<const void*>& inputs,
                const std::vector<void*>& outputs, int64_t count, double scale) {
  TP_ASSERT(!inputs.empty());
  switch (type) {
    case c10::kFloat:
      return scaled_sum_of<float>(inputs, outputs, count, scale);
    case c10::kDouble:
      return scaled_sum_of<double>(inputs, outputs, count, scale);
    case c10::kHalf:
      return scaled_sum_of<c10::Half>(inputs, outputs, count, scale);
    case c10::kBFloat16:
      return scaled_sum_of<c10::BFloat16>(inputs, outputs, count, scale);
    default:
      throw make_error("average over towers",
                       "gradients of type {} cannot be averaged. Make the variables floating.",
                       c10::toString(type));
  }
}

}  // namespace tensorpack
