// SPDX-License-Identifier: Apache-2.0
// What passes that look for patterns need on CUDA, besides graph/patterns.h.
#pragma once

#include <optional>
#include <vector>

#include "tensorpack/cuda/kernels/max_pool.h"
#include "tensorpack/graph/patterns.h"

namespace tensorpack::cuda {

/// True for images in channels_last on the device, whose columns the kernels can sum.
bool is_column_image(const Value& value, c10::DeviceType device);

/// True for elements in order, of a type that kernels know, on the device.
bool is_dense_data(const Value& value, c10::DeviceType device);

/// Numbers for height and width that an argument gives; nothing if they are not known.
std::vector<int64_t> height_and_width(const Node& node, size_t argument);

/// The window of a max pooling at `position` that kernels can do, with its backward passes, which
/// alone read its indices; nothing if there is none.
std::optional<PoolWindow> pool_window(const TraceEditor& editor, int32_t position,
                                      c10::DeviceType device);

/// The only reader of a value that nothing else sees; -1 if it is not so.
int32_t only_reader(const TraceEditor& editor, ValueId id);

/// If the node adds something of the same geometry to `id`, that; else kNoValue.
ValueId addend(const TraceEditor& editor, const Node& node, ValueId id);

/// True if somebody writes the value between the nodes `first` and `last`.
bool is_written_between(const TraceEditor& editor, ValueId id, int32_t first, int32_t last);

/// Has the node `convolution` not add its bias.
void drop_bias(TraceEditor& editor, int32_t convolution);

/// Has the node `convolution`, a convolution's backward, not sum up for the bias. Returns the
/// gradient that another node must make from then on.
ValueId drop_bias_gradient(TraceEditor& editor, int32_t convolution);

/// Has the node `convolution`, a convolution's backward, make the gradient of its input alone.
/// Another node must make the others from then on.
void drop_parameter_gradients(TraceEditor& editor, int32_t convolution);
/// The same; returns a node that makes the others.
Node take_parameter_gradients(TraceEditor& editor, int32_t convolution);
/// True for a convolution's backward that tells which gradients it makes.
bool is_convolution_backward(const Node& node);

/// Has a node of its own, at `here`, sum up `grad` for the bias, in place of the node
/// `convolution`, which is a convolution's backward.
void move_bias_gradient(TraceEditor& editor, int32_t convolution, int32_t here, ValueId grad);

/// A sum over the rows of a matrix, as which a value lies in memory.
struct RowSum {
  int32_t position = -1;  ///< of the node; -1 for none
  int64_t columns = 0;
};
/// One of the value, perhaps through a view, that can become part of what makes it; of a matrix of
/// so many columns, if they are given.
RowSum find_row_sum(const TraceEditor& editor, ValueId id, std::optional<int64_t> columns = {});
/// Puts `fused` in the place of `nodes`, which make `summed`, and of its sum; false if there is no
/// such place.
bool fuse_with_row_sum(TraceEditor& editor, std::vector<int32_t> nodes, ValueId summed,
                       const RowSum& sum, Node fused);

/// The constant in which column reductions of this trace count; made when first asked for.
class Counters {
 public:
  ValueId in(TraceEditor& editor, c10::Device device);

 private:
  ValueId id_ = kNoValue;
};

}  // namespace tensorpack::cuda
