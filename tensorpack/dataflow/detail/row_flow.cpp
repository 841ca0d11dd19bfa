// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/row_flow.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "tensorpack/dataflow/detail/collate.h"

namespace tensorpack::detail {
namespace {

bool are_in_a_row(const std::vector<int64_t>& numbers) {
  return std::adjacent_find(numbers.begin(), numbers.end(),
                            [](int64_t a, int64_t b) { return b != a + 1; }) == numbers.end();
}

}  // namespace

void RowFlow::start(int64_t pass) {
  const Shared memory = shared();
  watch_.look(memory.flow, std::vector<std::vector<at::Tensor>>{memory.tensors});
  order_.start(pass);
}

std::optional<DataPoint> RowFlow::next() {
  const auto number = order_.next();
  if (!number) return std::nullopt;
  return row(*number);
}

at::Tensor copy_rows(const at::Tensor& tensor, const std::vector<int64_t>& numbers) {
  const at::Tensor all = tensor.detach();
  const int64_t count = std::ssize(numbers);
  if (are_in_a_row(numbers)) {
    return all.narrow(0, numbers.front(), count).clone(at::MemoryFormat::Contiguous);
  }
  if (!is_plain_memory(all)) {
    return all.index_select(0, at::tensor(numbers, at::kLong).to(all.device()));
  }
  // By hand: index_select() takes several times as long for rows of a few bytes.
  std::vector<int64_t> shape = all.sizes().vec();
  shape[0] = count;
  at::Tensor rows = at::empty(shape, all.options());
  if (rows.numel() == 0) return rows;
  const size_t bytes = rows.nbytes() / numbers.size();
  const auto* from = static_cast<const std::byte*>(all.data_ptr());
  auto* to = static_cast<std::byte*>(rows.data_ptr());
  for (const int64_t number : numbers) {
    std::memcpy(to, from + static_cast<size_t>(number) * bytes, bytes);
    to += bytes;
  }
  return rows;
}

}  // namespace tensorpack::detail
