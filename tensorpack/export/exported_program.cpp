// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/exported_program.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

std::string describe(const Extent& extent, int64_t unit) {
  if (extent.is_fixed()) return std::to_string(extent.offset);
  const std::string multiple = extent.slope == unit ? "batch"
                               : unit == 1          ? fmt::format("{} batch", extent.slope)
                                           : fmt::format("{} batch / {}", extent.slope, unit);
  if (extent.offset == 0) return multiple;
  const bool is_negative = extent.offset < 0;
  return fmt::format("{} {} {}", multiple, is_negative ? '-' : '+',
                     is_negative ? -extent.offset : extent.offset);
}

std::string describe(const ExportedNode& node) {
  return node.layer.empty() ? node.op : fmt::format("{} in layer '{}'", node.op, node.layer);
}

std::string describe(const std::vector<Extent>& shape, int64_t unit) {
  std::vector<std::string> sizes;
  for (const Extent& extent : shape) sizes.push_back(describe(extent, unit));
  return fmt::format("[{}]", join(sizes, ", "));
}

int64_t evaluate(const Extent& extent, int64_t batch, int64_t unit) {
  if (extent.is_fixed()) return extent.offset;
  int64_t product = 0;
  int64_t sum = 0;
  const bool overflows = __builtin_mul_overflow(extent.slope, batch, &product) ||
                         __builtin_add_overflow(product / unit, extent.offset, &sum);
  TP_CHECK(!overflows, "exported model", "a batch of {} is too large for it.", batch);
  TP_CHECK(product % unit == 0, "exported model",
           "it takes batches of a multiple of {}, and was given one of {}. Fill the batch up.",
           unit, batch);
  return sum;
}

}  // namespace tensorpack
