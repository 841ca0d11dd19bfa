// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/padding.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/irange.h>
#include <torch/types.h>

#include <algorithm>

#include "tensorpack/dataflow/detail/collate.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {
namespace {

std::vector<int64_t> largest_shape(const std::vector<DataPoint>& points, size_t component) {
  std::vector<int64_t> largest = points[0][component].sizes().vec();
  for (const auto i : c10::irange(points.size())) {
    const auto shape = points[i][component].sizes();
    TP_CHECK(shape.size() == largest.size(), "batch",
             "component {} has {} in datapoint 0 of a batch and {} in datapoint {}. "
             "Padding needs the same number in all.",
             component, counted(std::ssize(largest), "dimension"), shape.size(), i);
    for (const auto d : c10::irange(shape.size())) largest[d] = std::max(largest[d], shape[d]);
  }
  return largest;
}

at::Tensor pad_to(const at::Tensor& tensor, const std::vector<int64_t>& shape, double value) {
  if (tensor.sizes() == at::IntArrayRef(shape)) return tensor;
  const at::NoGradGuard no_grad;
  at::Tensor padded = at::full(shape, value, tensor.options().requires_grad(false));
  at::Tensor place = padded;
  for (const auto d : c10::irange(tensor.dim())) place = place.narrow(d, 0, tensor.size(d));
  place.copy_(tensor);
  return padded;
}

void check(const std::vector<DataPoint>& points) {
  for (const auto i : c10::irange(points.size())) {
    TP_CHECK(points[i].size() == points[0].size(), "batch",
             "datapoint 0 of a batch has {} and datapoint {} has {}. Yield the same "
             "number each time.",
             counted(std::ssize(points[0]), "component"), i, points[i].size());
    for (const auto c : c10::irange(points[i].size())) {
      TP_CHECK(points[i][c].defined(), "batch",
               "component {} of datapoint {} of a batch is an undefined tensor. Give it a value.",
               c, i);
    }
  }
}

}  // namespace

DataPoint stack(const std::vector<DataPoint>& points, std::optional<double> padding) {
  Collator collator(std::ssize(points));
  if (!padding) {
    for (const DataPoint& point : points) collator.add(point);
    return collator.take();
  }
  check(points);
  std::vector<std::vector<int64_t>> shapes;
  for (const auto c : c10::irange(points[0].size())) shapes.push_back(largest_shape(points, c));
  for (const DataPoint& point : points) {
    DataPoint padded;
    for (const auto c : c10::irange(point.size())) {
      padded.push_back(pad_to(point[c], shapes[c], *padding));
    }
    collator.add(padded);
  }
  return collator.take();
}

}  // namespace tensorpack::detail
