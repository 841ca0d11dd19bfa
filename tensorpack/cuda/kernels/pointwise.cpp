// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/pointwise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/pointwise_source.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"

namespace tensorpack::cuda {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

constexpr int kThreads = 256;
constexpr int kSumBlocks = 2;  // per multiprocessor

int64_t elements_of(const DenseLayout& layout) {
  return std::accumulate(layout.sizes.begin(), layout.sizes.end(), int64_t{1}, std::multiplies<>());
}

// The dimensions that have more than one element, outermost in memory first.
std::vector<size_t> memory_order(const DenseLayout& layout) {
  std::vector<size_t> order;
  for (size_t d = 0; d < layout.sizes.size(); ++d) {
    if (layout.sizes[d] != 1) order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return layout.strides[a] > layout.strides[b]; });
  return order;
}

// How an input is walked over: neighbouring dimensions that lie one after the other are one.
Walk walk_of(const Tensor& input, const DenseLayout& layout) {
  const Tensor expanded = input.expand(layout.sizes);
  Walk walk;
  for (size_t d : memory_order(layout)) {
    const Dimension next{layout.sizes[d], expanded.stride(static_cast<int64_t>(d))};
    if (!walk.empty() && walk.back().stride == next.stride * next.size) {
      walk.back() = {walk.back().size * next.size, next.stride};
    } else {
      walk.push_back(next);
    }
  }
  return walk;
}

// As many neighbours as the smallest type has in a load. All of a thread's must exist, and lie in
// one row where columns are summed.
int width_of(const Tensors& inputs, const Tensors& outputs, int64_t row) {
  int64_t smallest = 4;
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const Tensor& tensor : *tensors) {
      if (tensor.element_size() > 1) smallest = std::min<int64_t>(smallest, tensor.element_size());
    }
  }
  int width = static_cast<int>(kLargestLoad / smallest);
  const auto fits = [&] {
    return row % width == 0 &&
           std::all_of(outputs.begin(), outputs.end(),
                       [&](const Tensor& output) { return is_aligned(output, width); });
  };
  while (width > 1 && !fits()) width /= 2;
  return width;
}

Tensors make_outputs(const Tensors& inputs, const Formula& formula, const DenseLayout& layout) {
  Tensors outputs;
  for (int result : formula.results) {
    const c10::ScalarType type = formula.steps.at(result - formula.inputs).type;
    outputs.push_back(
        at::empty_strided(layout.sizes, layout.strides, inputs.at(0).options().dtype(type)));
  }
  return outputs;
}

PointwisePlan plan_of(const Tensors& inputs, const Tensors& outputs, const Formula& formula,
                      const DenseLayout& layout, int64_t row) {
  PointwisePlan plan{.formula = formula, .width = width_of(inputs, outputs, row)};
  int64_t farthest = elements_of(layout);
  for (const Tensor& input : inputs) {
    plan.types.push_back(input.scalar_type());
    plan.walks.push_back(walk_of(input, layout));
    plan.aligned.push_back(is_aligned(input, plan.width));
    int64_t last = 0;
    for (const Dimension& dimension : plan.walks.back()) {
      last += (dimension.size - 1) * dimension.stride;
    }
    farthest = std::max(farthest, last);
  }
  plan.is_large = farthest > INT32_MAX;
  return plan;
}

std::vector<void*> addresses_of(const Tensors& inputs, const Tensors& outputs) {
  std::vector<void*> addresses;
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (const Tensor& tensor : *tensors) addresses.push_back(tensor.data_ptr());
  }
  return addresses;
}

// With each address, and then with each of the others, as the kernel's parameters.
void launch(const Launcher& launcher, const KernelSource& kernel, const LaunchShape& shape,
            std::vector<void*> addresses, const std::vector<void*>& others) {
  std::vector<void*> arguments;
  for (void*& address : addresses) arguments.push_back(static_cast<void*>(&address));
  arguments.insert(arguments.end(), others.begin(), others.end());
  launcher.launch(kernel, shape, arguments.data());
}

Tensor laid_out(const Tensor& tensor, const DenseLayout& layout) {
  if (tensor.sizes() == layout.sizes && tensor.strides() == layout.strides) return tensor;
  return at::empty_strided(layout.sizes, layout.strides, tensor.options())
      .copy_(tensor.expand(layout.sizes));
}

}  // namespace

bool is_dense(at::IntArrayRef sizes, at::IntArrayRef strides) {
  const DenseLayout layout{sizes.vec(), strides.vec()};
  int64_t expected = elements_of(layout);
  if (expected == 0) return false;
  for (size_t d : memory_order(layout)) {
    expected /= sizes[d];
    if (strides[d] != expected) return false;
  }
  return true;
}

Tensors pointwise(const Tensors& inputs, const Formula& formula, const DenseLayout& layout,
                  const Launcher& launcher) {
  const Tensors outputs = make_outputs(inputs, formula, layout);
  long long elements = elements_of(layout);
  if (elements == 0) return outputs;
  const PointwisePlan plan = plan_of(inputs, outputs, formula, layout, elements);
  const int64_t per_block = int64_t{kThreads} * plan.width;
  const LaunchShape shape{
      .grid = {static_cast<unsigned>((elements + per_block - 1) / per_block), 1},
      .block = {kThreads, 1}};
  launch(launcher, pointwise_source(plan), shape, addresses_of(inputs, outputs), {&elements});
  return outputs;
}

Tensors pointwise_unfused(const Tensors& inputs, const Formula& formula,
                          const DenseLayout& layout) {
  Tensors values = inputs;
  for (const Step& step : formula.steps) values.push_back(run_step(step, values));
  Tensors results;
  for (int result : formula.results) results.push_back(laid_out(values.at(result), layout));
  return results;
}

Tensors pointwise_sum(const Tensors& inputs, const Tensor& counters, const Formula& formula,
                      const DenseLayout& layout, const PointwiseSum& sum,
                      const Launcher& launcher) {
  Tensors outputs = make_outputs(inputs, formula, layout);
  const PointwisePlan plan = plan_of(inputs, outputs, formula, layout, sum.columns);
  const ColumnPlan columns{.type = inputs.at(0).scalar_type(),
                           .rows = elements_of(layout) / sum.columns,
                           .columns = sum.columns,
                           .width = plan.width};
  const LaunchShape shape = columns.shape_of_sums(launcher.multiprocessors(), kSumBlocks);
  const auto options = inputs.at(0).options();
  const Tensor sums = at::empty(sum.sizes, options.dtype(sum.type));
  const Tensor partial = at::empty({shape.grid[1], sum.columns, 2}, options.dtype(at::kFloat));
  long long rows = columns.rows;
  int across = static_cast<int>(columns.columns);
  std::vector<void*> addresses = addresses_of(inputs, outputs);
  addresses.insert(addresses.end(), {sums.data_ptr(), partial.data_ptr(), counters.data_ptr()});
  launch(launcher, pointwise_sum_source(plan, sum.type), shape, addresses, {&rows, &across});
  outputs.push_back(sums);
  return outputs;
}

Tensors pointwise_sum_unfused(const Tensors& inputs, const Formula& formula,
                              const DenseLayout& layout, const PointwiseSum& sum) {
  Tensors results = pointwise_unfused(inputs, formula, layout);
  // As it lies in memory.
  const Tensor matrix =
      results[0].as_strided({results[0].numel() / sum.columns, sum.columns}, {sum.columns, 1});
  results.push_back(matrix.sum({0}, false, at::kFloat).to(sum.type).view(sum.sizes));
  return results;
}

}  // namespace tensorpack::cuda
