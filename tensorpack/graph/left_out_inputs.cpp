// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/left_out_inputs.h"

#include <ATen/ATen.h>

#include <optional>
#include <set>

#include "tensorpack/graph/random_stream.h"
#include "tensorpack/utils/error_context.h"

namespace tensorpack {
namespace {

// The batch that is given: the first dimension of an input where it is open, or else of any.
std::optional<int64_t> given_batch(const std::vector<TensorSpec>& inputs,
                                   const std::vector<at::Tensor>& given) {
  std::optional<int64_t> batch;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!given[i].defined() || given[i].dim() == 0) continue;
    const bool is_open = !inputs[i].shape.empty() && inputs[i].shape[0] == -1;
    if (is_open) return given[i].size(0);
    if (!batch) batch = given[i].size(0);
  }
  return batch;
}

Shape trial_shape_of(const TensorSpec& spec) { return spec.trial_value(c10::kMeta).sizes().vec(); }

// The size of an open inner dimension of an input, from what is given: that of the inputs which
// have as many dimensions and leave the same one open, or else of all that are open; nullopt where
// these differ. Dimensions that have other sizes in the trial shapes are others.
std::optional<int64_t> given_size(const TensorSpec& input, size_t dim,
                                  const std::vector<TensorSpec>& inputs,
                                  const std::vector<at::Tensor>& given) {
  const int64_t trial_size = trial_shape_of(input)[dim];
  std::set<int64_t> same_place, all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = inputs[i];
    if (!given[i].defined()) continue;
    if (given[i].dim() != std::ssize(spec.shape)) continue;  // an error of the session
    const Shape trial = trial_shape_of(spec);
    for (size_t d = 1; d < spec.shape.size(); ++d) {
      if (spec.shape[d] != -1 || trial[d] != trial_size) continue;
      const int64_t size = given[i].size(static_cast<int64_t>(d));
      if (d == dim && spec.shape.size() == input.shape.size()) same_place.insert(size);
      all.insert(size);
    }
  }
  const std::set<int64_t>& sizes = same_place.empty() ? all : same_place;
  return sizes.size() == 1 ? std::optional(*sizes.begin()) : std::nullopt;
}

}  // namespace

Shape shape_of_left_out(const TensorSpec& input, const std::vector<TensorSpec>& inputs,
                        const std::vector<at::Tensor>& given) {
  Shape shape = trial_shape_of(input);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (input.shape[dim] != -1) continue;
    const auto size = dim == 0 ? given_batch(inputs, given) : given_size(input, dim, inputs, given);
    shape[dim] = size.value_or(shape[dim]);
  }
  return shape;
}

void fill_defaults(const std::vector<TensorSpec>& inputs, std::vector<at::Tensor>& tensors,
                   const at::Generator& generator) {
  const std::vector<at::Tensor> given = tensors;
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorSpec& spec = inputs[i];
    if (tensors[i].defined() || !spec.default_value) continue;
    const DrawFrom random_numbers(generator);
    try {
      tensors[i] = spec.default_value(shape_of_left_out(spec, inputs, given), spec.dtype);
    } catch (...) {
      rethrow_with("in the default of the input '" + spec.name + "'");
    }
  }
}

}  // namespace tensorpack
