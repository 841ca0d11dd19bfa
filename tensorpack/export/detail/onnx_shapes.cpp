// SPDX-License-Identifier: Apache-2.0
// Operators that move elements, or make them of nothing.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "tensorpack/export/detail/onnx_node.h"

namespace tensorpack::detail {
namespace {

using Integers = std::vector<int64_t>;

// One size that follows from the batch need not be computed: ONNX finds it, too.
OnnxMapping reshape(std::string argument) {
  return [argument](OnnxNode& node) {
    std::vector<Extent> shape = node.extents(argument);
    const bool has_open = std::any_of(shape.begin(), shape.end(), [](const Extent& e) {
      return e == Extent{0, -1};
    });
    const auto is_varying = [](const Extent& e) { return !e.is_fixed(); };
    if (!has_open && std::count_if(shape.begin(), shape.end(), is_varying) == 1) {
      std::replace_if(shape.begin(), shape.end(), is_varying, Extent{0, -1});
    }
    node.give(node.emit("Reshape", {node.in("self"), node.list(shape)}));
  };
}

void permute(OnnxNode& node) {
  Integers order = node.integers("dims");
  for (int64_t& dim : order) dim = node.axis(dim, node.rank("self"));
  node.give(node.emit("Transpose", {node.in("self")}, {{"perm", order}}));
}

void swap_dims(OnnxNode& node, int64_t a, int64_t b) {
  const int64_t rank = node.rank("self");
  Integers order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  if (rank > 1) std::swap(order[node.axis(a, rank)], order[node.axis(b, rank)]);
  node.give(node.emit("Transpose", {node.in("self")}, {{"perm", order}}));
}

void transpose(OnnxNode& node) { swap_dims(node, node.integer("dim0"), node.integer("dim1")); }

void unsqueeze(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim"), node.rank("self") + 1);
  node.give(node.emit("Unsqueeze", {node.in("self"), node.list(Integers{axis})}));
}

// libtorch leaves dimensions of another size than 1 alone.
void squeeze(OnnxNode& node) {
  const std::vector<Extent>& shape = node.shape("self");
  Integers dims = node.integers("dim");
  if (!node.given("dim")) {
    dims.resize(shape.size());
    std::iota(dims.begin(), dims.end(), 0);
  }
  Integers axes;
  for (int64_t dim : dims) {
    const int64_t axis = node.axis(dim, node.rank("self"));
    if (shape.at(static_cast<size_t>(axis)) == Extent{0, 1}) axes.push_back(axis);
  }
  node.give(axes.empty() ? node.emit("Identity", {node.in("self")})
                         : node.emit("Squeeze", {node.in("self"), node.list(axes)}));
}

void select(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim"), node.rank("self"));
  const std::string index = node.constant(at::scalar_tensor(node.integer("index"), at::kLong));
  node.give(node.emit("Gather", {node.in("self"), index}, {{"axis", axis}}));
}

void slice(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim", 0), node.rank("self"));
  const auto bound = [&](const char* name, int64_t standard) {
    const std::vector<Extent> given = node.extents(name);
    return node.list(given.empty() ? std::vector<Extent>{{0, standard}} : given);
  };
  node.give(node.emit(
      "Slice",
      {node.in("self"), bound("start", 0), bound("end", std::numeric_limits<int64_t>::max()),
       node.list(Integers{axis}), node.list(Integers{node.integer("step", 1)})}));
}

void split(OnnxNode& node, const Integers& sizes, int64_t axis) {
  node.give_list(
      node.emit("Split", {node.in("self"), node.list(sizes)}, {{"axis", axis}}, sizes.size()));
}

void split_evenly(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim", 0), node.rank("self"));
  const Extent& whole = node.shape("self").at(static_cast<size_t>(axis));
  node.check(whole.is_fixed(), "it splits the batch");
  const int64_t step = node.integer("split_size");
  Integers sizes;
  for (int64_t begin = 0; begin < whole.offset; begin += step) {
    sizes.push_back(std::min(step, whole.offset - begin));
  }
  split(node, sizes, axis);
}

void split_by_sizes(OnnxNode& node) {
  split(node, node.integers("split_sizes"), node.axis(node.integer("dim", 0), node.rank("self")));
}

void unbind(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim", 0), node.rank("self"));
  const std::string x = node.in("self");
  std::vector<std::string> parts;
  for (size_t i = 0; i < node.result_count(); ++i) {
    const std::string index = node.constant(at::scalar_tensor(static_cast<int64_t>(i), at::kLong));
    parts.push_back(node.emit("Gather", {x, index}, {{"axis", axis}}));
  }
  node.give_list(parts);
}

void cat(OnnxNode& node) {
  const ExportedValue& result = node.result_value();
  const int64_t axis = node.axis(node.integer("dim", 0), static_cast<int64_t>(result.shape.size()));
  node.give(node.emit("Concat", node.ins("tensors", result.dtype), {{"axis", axis}}));
}

void stack(OnnxNode& node) {
  const ExportedValue& result = node.result_value();
  const int64_t axis = node.axis(node.integer("dim", 0), static_cast<int64_t>(result.shape.size()));
  std::vector<std::string> parts;
  for (const std::string& part : node.ins("tensors", result.dtype)) {
    parts.push_back(node.emit("Unsqueeze", {part, node.list(Integers{axis})}));
  }
  node.give(node.emit("Concat", parts, {{"axis", axis}}));
}

// A size of 1 keeps what is there, and so does -1 in libtorch.
void expand(OnnxNode& node) {
  const std::vector<Extent>& from = node.shape("self");
  std::vector<Extent> to = node.extents("size");
  const size_t added = to.size() - from.size();
  for (size_t i = 0; i < to.size(); ++i) {
    const bool is_kept = to[i] == Extent{0, -1} || (i >= added && to[i] == from[i - added]);
    if (is_kept) to[i] = {0, 1};
  }
  node.give(node.emit("Expand", {node.in("self"), node.list(to)}));
}

void repeat(OnnxNode& node) {
  const std::vector<Extent> times = node.extents("repeats");
  std::vector<Extent> shape = node.shape("self");
  shape.insert(shape.begin(), times.size() - shape.size(), Extent{0, 1});
  const std::string x = node.emit("Reshape", {node.in("self"), node.list(shape)});
  node.give(node.emit("Tile", {x, node.list(times)}));
}

void flip(OnnxNode& node) {
  Integers axes = node.integers("dims");
  for (int64_t& axis : axes) axis = node.axis(axis, node.rank("self"));
  const size_t count = axes.size();
  node.give(node.emit("Slice", {node.in("self"), node.list(Integers(count, -1)),
                                node.list(Integers(count, std::numeric_limits<int64_t>::min())),
                                node.list(axes), node.list(Integers(count, -1))}));
}

// From pairs for the last dimensions, the last first, to all beginnings and then all ends.
OnnxMapping pad(std::string mode, std::string argument) {
  return [mode, argument](OnnxNode& node) {
    const Integers pairs = node.integers(argument);
    const auto rank = static_cast<size_t>(node.rank("self"));
    Integers pads(2 * rank, 0);
    for (size_t i = 0; 2 * i + 1 < pairs.size(); ++i) {
      pads.at(rank - 1 - i) = pairs[2 * i];
      pads.at(2 * rank - 1 - i) = pairs[2 * i + 1];
    }
    std::vector<std::string> inputs = {node.in("self"), node.list(pads)};
    if (mode == "constant") inputs.push_back(node.operand("value", node.dtype("self")));
    if (inputs.back().empty()) inputs.back() = node.scalar(0, node.dtype("self"));
    node.give(node.emit("Pad", inputs, {{"mode", mode}}));
  };
}

void index_select(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim"), node.rank("self"));
  node.give(node.emit("Gather", {node.in("self"), node.in("index")}, {{"axis", axis}}));
}

void gather(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim"), node.rank("self"));
  node.give(node.emit("GatherElements", {node.in("self"), node.in("index")}, {{"axis", axis}}));
}

void index(OnnxNode& node) {
  const std::vector<std::string> indices = node.ins("indices");
  const auto is_given = [](const std::string& name) { return !name.empty(); };
  node.check(std::count_if(indices.begin(), indices.end(), is_given) == 1,
             "it has several tensors of indices");
  const auto axis = std::find_if(indices.begin(), indices.end(), is_given);
  node.give(node.emit("Gather", {node.in("self"), *axis}, {{"axis", axis - indices.begin()}}));
}

// Tensors of one number, of a shape that may follow from the batch.
OnnxMapping filled(double standard) {
  return [standard](OnnxNode& node) {
    const ExportedValue& result = node.result_value();
    const std::string number = node.given("fill_value") ? node.operand("fill_value", result.dtype)
                                                        : node.scalar(standard, result.dtype);
    if (result.shape.empty()) return node.give(number);
    node.give(node.emit("Expand", {number, node.list(result.shape)}));
  };
}

// Another element in every place of a tensor that is there.
OnnxMapping refilled(double standard) {
  return [standard](OnnxNode& node) {
    const ExportedValue& result = node.result_value();
    const std::string number = node.given("value") ? node.operand("value", result.dtype)
                                                   : node.scalar(standard, result.dtype);
    if (result.shape.empty()) return node.give(number);
    node.give(node.emit("Expand", {number, node.list(result.shape)}));
  };
}

void copy(OnnxNode& node) {
  const ExportedValue& result = node.result_value();
  const std::string source = node.in("src", result.dtype);
  node.give(node.shape("src") == result.shape
                ? node.emit("Identity", {source})
                : node.emit("Expand", {source, node.list(result.shape)}));
}

void range(OnnxNode& node) {
  const auto bound = [&](const char* name, int64_t standard) {
    const std::vector<Extent> given = node.extents(name);
    const std::string list = node.list(given.empty() ? std::vector<Extent>{{0, standard}} : given);
    return node.emit("Squeeze", {list});
  };
  const std::string integers =
      node.emit("Range", {bound("start", 0), bound("end", 0), bound("step", 1)});
  const c10::ScalarType dtype = node.result_value().dtype;
  node.give(dtype == at::kLong ? integers : node.cast(integers, dtype));
}

OnnxMapping triangle(bool is_upper) {
  return [is_upper](OnnxNode& node) {
    const std::string diagonal =
        node.constant(at::scalar_tensor(node.integer("diagonal", 0), at::kLong));
    node.give(node.emit("Trilu", {node.in("self"), diagonal}, {{"upper", is_upper ? 1L : 0L}}));
  };
}

}  // namespace

const std::map<std::string, OnnxMapping>& onnx_shapes() {
  static const std::map<std::string, OnnxMapping> table = {
      {"aten::reshape", reshape("shape")},
      {"aten::view", reshape("size")},
      {"aten::_unsafe_view", reshape("size")},
      {"aten::_reshape_alias", reshape("size")},
      {"aten::permute", permute},
      {"aten::t", [](OnnxNode& node) { swap_dims(node, 0, 1); }},
      {"aten::transpose", transpose},  // in place it has no overloads
      {"aten::transpose.int", transpose},
      {"aten::unsqueeze", unsqueeze},
      {"aten::squeeze", squeeze},
      {"aten::squeeze.dim", squeeze},
      {"aten::squeeze.dims", squeeze},
      {"aten::select.int", select},
      {"aten::slice.Tensor", slice},
      {"aten::split.Tensor", split_evenly},
      {"aten::unsafe_split.Tensor", split_evenly},
      {"aten::split_with_sizes", split_by_sizes},
      {"aten::unsafe_split_with_sizes", split_by_sizes},
      {"aten::unbind.int", unbind},
      {"aten::cat", cat},
      {"aten::stack", stack},
      {"aten::expand", expand},
      {"aten::repeat", repeat},
      {"aten::flip", flip},
      {"aten::constant_pad_nd", pad("constant", "pad")},
      {"aten::reflection_pad1d", pad("reflect", "padding")},
      {"aten::reflection_pad2d", pad("reflect", "padding")},
      {"aten::replication_pad1d", pad("edge", "padding")},
      {"aten::replication_pad2d", pad("edge", "padding")},
      {"aten::index_select", index_select},
      {"aten::gather", gather},
      {"aten::index.Tensor", index},
      {"aten::empty.memory_format", filled(0)},
      {"aten::empty_like", filled(0)},
      {"aten::zeros", filled(0)},
      {"aten::zeros_like", filled(0)},
      {"aten::new_zeros", filled(0)},
      {"aten::ones", filled(1)},
      {"aten::ones_like", filled(1)},
      {"aten::new_ones", filled(1)},
      {"aten::full", filled(0)},
      {"aten::full_like", filled(0)},
      {"aten::new_full", filled(0)},
      {"aten::fill.Scalar", refilled(0)},
      {"aten::fill.Tensor", refilled(0)},
      {"aten::zero", refilled(0)},
      {"aten::copy", copy},
      {"aten::arange", range},
      {"aten::arange.start", range},
      {"aten::arange.start_step", range},
      {"aten::tril", triangle(false)},
      {"aten::triu", triangle(true)},
  };
  return table;
}

}  // namespace tensorpack::detail
