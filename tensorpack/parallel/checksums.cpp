// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/checksums.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "tensorpack/utils/hash.h"

namespace tensorpack {
namespace {

// A row has a sum of its own. No sum overflows: 2^17 words below 2^31 times weights below 2^14.
constexpr int64_t kRow = int64_t{1} << 17;
// 32 MiB of products exist at a time.
constexpr int64_t kRowsAtATime = 32;

// The elements in their logical order.
at::Tensor flat(const at::Tensor& tensor) {
  const at::Tensor real = tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor;
  return real.resolve_neg().contiguous().view({-1});
}

// The bits as integers of up to four bytes.
at::Tensor words_of(const at::Tensor& tensor) {
  const size_t size = tensor.element_size();
  return tensor.view(size == 1 ? at::kByte : size == 2 ? at::kShort : at::kInt);
}

// Odd numbers below 2^14, so that what changes place changes the sum, too.
at::Tensor make_weights(c10::Device device) {
  const at::Tensor places = at::arange(kRow, at::TensorOptions(at::kLong).device(device));
  return (places * 40503).bitwise_and_(0x1FFF).mul_(2).add_(1);
}

// Appends the sums of all rows.
void add_sums(const at::Tensor& words, const at::Tensor& weights, std::vector<at::Tensor>& sums) {
  const int64_t rows = words.numel() / kRow;
  for (int64_t row = 0; row < rows; row += kRowsAtATime) {
    const int64_t count = std::min(kRowsAtATime, rows - row);
    const at::Tensor part = words.narrow(0, row * kRow, count * kRow).view({count, kRow});
    sums.push_back(part.to(at::kLong).mul_(weights).sum(1));
  }
  const int64_t rest = words.numel() - rows * kRow;
  const at::Tensor last = words.narrow(0, rows * kRow, rest);
  sums.push_back(last.to(at::kLong).mul_(weights.narrow(0, 0, rest)).sum().view({1}));
}

uint64_t hash_of(const at::Tensor& dense) {
  return xxh64(std::string_view(static_cast<const char*>(dense.data_ptr()), dense.nbytes()));
}

}  // namespace

std::vector<uint64_t> detail::checksums_by_sums(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return {};
  const at::NoGradGuard no_grad;
  const at::Tensor weights = make_weights(tensors[0].device());
  std::vector<at::Tensor> sums;
  for (const at::Tensor& tensor : tensors) {
    std::vector<at::Tensor> of_tensor;
    add_sums(words_of(flat(tensor.detach())), weights, of_tensor);
    sums.push_back(of_tensor.size() == 1 ? of_tensor[0] : at::cat(of_tensor));
  }
  const at::Tensor on_host = at::cat(sums).cpu();
  std::vector<uint64_t> values;
  int64_t begin = 0;
  for (const at::Tensor& of_tensor : sums) {
    values.push_back(hash_of(on_host.narrow(0, begin, of_tensor.numel())));
    begin += of_tensor.numel();
  }
  return values;
}

std::vector<uint64_t> checksums(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<uint64_t> values(tensors.size());
  const bool are_on_host = std::all_of(tensors.begin(), tensors.end(),
                                       [](const at::Tensor& tensor) { return tensor.is_cpu(); });
  if (are_on_host) {
    for (size_t i = 0; i < tensors.size(); ++i) values[i] = hash_of(flat(tensors[i].detach()));
    return values;
  }
  std::map<std::string, std::vector<size_t>> by_device;
  for (size_t i = 0; i < tensors.size(); ++i) by_device[tensors[i].device().str()].push_back(i);
  for (const auto& [device, places] : by_device) {
    std::vector<at::Tensor> there;
    for (const size_t i : places) there.push_back(tensors[i]);
    const std::vector<uint64_t> sums = detail::checksums_by_sums(there);
    for (size_t k = 0; k < places.size(); ++k) values[places[k]] = sums[k];
  }
  return values;
}

}  // namespace tensorpack
