// SPDX-License-Identifier: Apache-2.0
// Products of matrices, convolutions, normalisation, pooling, reductions.
#include <ATen/ATen.h>

#include <numeric>

#include "tensorpack/export/detail/onnx_node.h"

namespace tensorpack::detail {
namespace {

using Integers = std::vector<int64_t>;

// Before every dimension, then after: the same.
Integers both_ends(Integers padding) {
  const Integers copy = padding;
  padding.insert(padding.end(), copy.begin(), copy.end());
  return padding;
}

std::string scaled(OnnxNode& node, const std::string& x, const char* factor) {
  const double value = node.number(factor, 1);
  return value == 1 ? x : node.emit("Mul", {x, node.scalar(value, node.result_value().dtype)});
}

OnnxMapping product(std::string left, std::string right) {
  return [left, right](OnnxNode& node) {
    node.give(node.emit("MatMul", {node.in(left), node.in(right)}));
  };
}

// beta * self + alpha * left x right
OnnxMapping added_product(std::string left, std::string right) {
  return [left, right](OnnxNode& node) {
    const std::string x =
        scaled(node, node.emit("MatMul", {node.in(left), node.in(right)}), "alpha");
    node.give(node.emit("Add", {x, scaled(node, node.in("self"), "beta")}));
  };
}

void linear(OnnxNode& node) {
  Integers order(node.shape("weight").size());
  std::iota(order.rbegin(), order.rend(), 0);
  std::string x = node.emit(
      "MatMul", {node.in("input"), node.emit("Transpose", {node.in("weight")}, {{"perm", order}})});
  node.give(node.given("bias") ? node.emit("Add", {x, node.in("bias")}) : x);
}

void convolution(OnnxNode& node) {
  const auto dims = static_cast<size_t>(node.rank("weight") - 2);
  const bool is_transposed = node.flag("transposed", false);
  std::vector<OnnxAttribute> attributes = {
      {"kernel_shape", node.last_sizes("weight", dims)},
      {"strides", node.integers("stride", dims)},
      {"dilations", node.integers("dilation", dims)},
      {"pads", both_ends(node.integers("padding", dims))},
      {"group", node.integer("groups", 1)},
  };
  if (is_transposed) {
    attributes.push_back({"output_padding", node.integers("output_padding", dims)});
  }
  std::vector<std::string> inputs = {node.in("input"), node.in("weight")};
  if (node.given("bias")) inputs.push_back(node.in("bias"));
  node.give(node.emit(is_transposed ? "ConvTranspose" : "Conv", inputs, attributes));
}

// A vector for the channels: the argument, or this number where there is none.
std::string channels(OnnxNode& node, const std::string& name, double standard) {
  if (node.given(name)) return node.in(name);
  const std::string number = node.constant(at::full({1}, standard, node.dtype("input")));
  return node.emit("Expand", {number, node.list(std::vector<Extent>{node.shape("input").at(1)})});
}

// By its own statistics, a batch of one image is normalized as InstanceNormalization does.
void batch_norm(OnnxNode& node) {
  const bool is_single = node.shape("input").at(0) == Extent{0, 1} && !node.given("running_mean");
  node.check(!node.flag("training", false) || is_single,
             "it normalizes by the statistics of the batch");
  std::vector<std::string> inputs = {node.in("input"), channels(node, "weight", 1),
                                     channels(node, "bias", 0)};
  std::string type = "InstanceNormalization";
  if (!node.flag("training", false)) {
    type = "BatchNormalization";
    inputs.insert(inputs.end(), {node.in("running_mean"), node.in("running_var")});
  }
  node.give(node.emit(type, inputs, {{"epsilon", static_cast<float>(node.number("eps", 1e-5))}}));
}

void layer_norm(OnnxNode& node) {
  const Integers shape = node.integers("normalized_shape");
  const c10::ScalarType dtype = node.dtype("input");
  std::vector<std::string> inputs = {node.in("input")};
  inputs.push_back(node.given("weight") ? node.in("weight")
                                        : node.constant(at::ones(shape, dtype)));
  if (node.given("bias")) inputs.push_back(node.in("bias"));
  node.give(node.emit("LayerNormalization", inputs,
                      {{"axis", -static_cast<int64_t>(shape.size())},
                       {"epsilon", static_cast<float>(node.number("eps", 1e-5))}}));
}

// Groups are normalized as channels are by InstanceNormalization; the weights come after it.
void group_norm(OnnxNode& node) {
  const int64_t groups = node.integer("group");
  const c10::ScalarType dtype = node.dtype("input");
  const std::string grouped =
      node.emit("Reshape", {node.in("input"), node.list(Integers{0, groups, -1})});
  const std::string normal = node.emit("InstanceNormalization",
                                       {grouped, node.constant(at::ones({groups}, dtype)),
                                        node.constant(at::zeros({groups}, dtype))},
                                       {{"epsilon", static_cast<float>(node.number("eps", 1e-5))}});
  std::string x = node.emit("Reshape", {normal, node.list(node.shape("input"))});
  Integers shape(static_cast<size_t>(node.rank("input") - 1), 1);
  shape[0] = node.integer("C");
  const auto spread = [&](const char* name) {
    return node.emit("Reshape", {node.in(name), node.list(shape)});
  };
  if (node.given("weight")) x = node.emit("Mul", {x, spread("weight")});
  if (node.given("bias")) x = node.emit("Add", {x, spread("bias")});
  node.give(x);
}

std::vector<OnnxAttribute> pooling_attributes(OnnxNode& node) {
  constexpr size_t kDims = 2;
  const Integers kernel = node.integers("kernel_size", kDims);
  const Integers stride = node.integers("stride");
  return {
      {"kernel_shape", kernel},
      {"strides", stride.empty() ? kernel : node.integers("stride", kDims)},
      {"pads", both_ends(node.given("padding") ? node.integers("padding", kDims) : Integers{0, 0})},
      {"ceil_mode", node.flag("ceil_mode", false) ? 1L : 0L},
  };
}

void max_pool(OnnxNode& node) {
  node.check(node.rank("self") == 4, "its input is not a batch of images");
  auto attributes = pooling_attributes(node);
  attributes.push_back(
      {"dilations", node.given("dilation") ? node.integers("dilation", 2) : Integers{1, 1}});
  node.give(node.emit("MaxPool", {node.in("self")}, attributes));
}

void avg_pool(OnnxNode& node) {
  node.check(node.rank("self") == 4, "its input is not a batch of images");
  node.check(!node.given("divisor_override"), "it has a divisor of its own");
  auto attributes = pooling_attributes(node);
  attributes.push_back({"count_include_pad", node.flag("count_include_pad", true) ? 1L : 0L});
  node.give(node.emit("AveragePool", {node.in("self")}, attributes));
}

// Window i of `to` along a dimension of size `from` is what libtorch takes: it may share elements
// with its neighbours.
std::string reduced_windows(OnnxNode& node, const std::string& x, const std::string& reduction,
                            int64_t axis, int64_t from, int64_t to) {
  std::vector<std::string> windows;
  for (int64_t i = 0; i < to; ++i) {
    const std::string window = node.emit(
        "Slice", {x, node.list(Integers{i * from / to}),
                  node.list(Integers{((i + 1) * from + to - 1) / to}), node.list(Integers{axis})});
    windows.push_back(node.emit(reduction, {window}, {{"axes", Integers{axis}}, {"keepdims", 1L}}));
  }
  return node.emit("Concat", windows, {{"axis", axis}});
}

// Windows of one size are a pooling of ONNX; others are cut out, one dimension after the other.
OnnxMapping adaptive_pool(std::string pooling, std::string reduction) {
  return [pooling, reduction](OnnxNode& node) {
    node.check(node.rank("self") == 4, "its input is not a batch of images");
    const Integers from = node.last_sizes("self", 2);
    const Integers to = node.integers("output_size", 2);
    node.check(to[0] > 0 && to[1] > 0, "its result is empty");
    std::string x = node.in("self");
    if (from[0] % to[0] == 0 && from[1] % to[1] == 0) {
      const Integers kernel = {from[0] / to[0], from[1] / to[1]};
      x = node.emit(pooling, {x}, {{"kernel_shape", kernel}, {"strides", kernel}});
    } else {
      for (size_t i : {0, 1}) {
        x = reduced_windows(node, x, reduction, static_cast<int64_t>(2 + i), from[i], to[i]);
      }
    }
    node.give(x);
  };
}

Integers reduced_axes(OnnxNode& node) {
  Integers axes;
  for (int64_t dim : node.integers("dim")) axes.push_back(node.axis(dim, node.rank("self")));
  if (axes.empty()) {
    axes.resize(static_cast<size_t>(node.rank("self")));
    std::iota(axes.begin(), axes.end(), 0);
  }
  return axes;
}

// Until opset 18 only ReduceSum takes its axes as an input.
OnnxMapping reduction(std::string type) {
  return [type](OnnxNode& node) {
    const std::string x = node.in("self", node.result_value().dtype);
    const int64_t keep = node.flag("keepdim", false) ? 1 : 0;
    if (node.rank("self") == 0) return node.give(node.emit("Identity", {x}));
    if (type == "ReduceSum") {
      node.give(node.emit(type, {x, node.list(reduced_axes(node))}, {{"keepdims", keep}}));
    } else {
      node.give(node.emit(type, {x}, {{"axes", reduced_axes(node)}, {"keepdims", keep}}));
    }
  };
}

void cumulative_sum(OnnxNode& node) {
  const std::string x = node.in("self", node.result_value().dtype);
  if (node.rank("self") == 0) return node.give(node.emit("Identity", {x}));
  const int64_t axis = node.axis(node.integer("dim"), node.rank("self"));
  node.give(node.emit("CumSum", {x, node.constant(at::scalar_tensor(axis, at::kLong))}));
}

// The largest or smallest element along a dimension, and where it is.
OnnxMapping extreme(std::string type, std::string where) {
  return [type, where](OnnxNode& node) {
    const int64_t axis = node.axis(node.integer("dim"), node.rank("self"));
    const int64_t keep = node.flag("keepdim", false) ? 1 : 0;
    const std::string x = node.in("self");
    node.give(node.emit(type, {x}, {{"axes", Integers{axis}}, {"keepdims", keep}}), 0);
    node.give(node.emit(where, {x}, {{"axis", axis}, {"keepdims", keep}}), 1);
  };
}

OnnxMapping place_of_extreme(std::string type) {
  return [type](OnnxNode& node) {
    std::string x = node.in("self");
    const bool is_flat = !node.given("dim");
    if (is_flat) x = node.emit("Reshape", {x, node.list(Integers{-1})});
    const int64_t axis = is_flat ? 0 : node.axis(node.integer("dim"), node.rank("self"));
    const int64_t keep = !is_flat && node.flag("keepdim", false) ? 1 : 0;
    node.give(node.emit(type, {x}, {{"axis", axis}, {"keepdims", keep}}));
  };
}

void top_k(OnnxNode& node) {
  const int64_t axis = node.axis(node.integer("dim", -1), node.rank("self"));
  const auto results = node.emit("TopK", {node.in("self"), node.list(Integers{node.integer("k")})},
                                 {{"axis", axis},
                                  {"largest", node.flag("largest", true) ? 1L : 0L},
                                  {"sorted", node.flag("sorted", true) ? 1L : 0L}},
                                 2);
  node.give(results[0], 0);
  node.give(results[1], 1);
}

OnnxMapping soft_maximum(std::string type) {
  return [type](OnnxNode& node) {
    node.give(node.emit(type, {node.in("self", node.result_value().dtype)},
                        {{"axis", node.axis(node.integer("dim"), node.rank("self"))}}));
  };
}

OnnxMapping upsampling(std::string mode) {
  return [mode](OnnxNode& node) {
    const Integers from = node.last_sizes("self", 2);
    Integers to;
    for (size_t i = 2; i < 4; ++i) to.push_back(node.result_value().shape.at(i).offset);
    const at::Tensor scales = at::tensor(
        {1.0, 1.0, static_cast<double>(to[0]) / from[0], static_cast<double>(to[1]) / from[1]},
        at::kFloat);
    const bool is_nearest = mode == "nearest";
    const std::string transform = is_nearest                          ? "asymmetric"
                                  : node.flag("align_corners", false) ? "align_corners"
                                                                      : "half_pixel";
    std::vector<OnnxAttribute> attributes = {{"mode", mode},
                                             {"coordinate_transformation_mode", transform}};
    if (is_nearest) attributes.push_back({"nearest_mode", "floor"});
    node.give(node.emit("Resize", {node.in("self"), "", node.constant(scales)}, attributes));
  };
}

void embedding(OnnxNode& node) {
  node.give(node.emit("Gather", {node.in("weight"), node.in("indices")}, {{"axis", 0L}}));
}

}  // namespace

const std::map<std::string, OnnxMapping>& onnx_layers() {
  static const std::map<std::string, OnnxMapping> table = {
      {"aten::mm", product("self", "mat2")},
      {"aten::bmm", product("self", "mat2")},
      {"aten::matmul", product("self", "other")},
      {"aten::addmm", added_product("mat1", "mat2")},
      {"aten::baddbmm", added_product("batch1", "batch2")},
      {"aten::linear", linear},
      {"aten::convolution", convolution},
      {"aten::native_batch_norm", batch_norm},
      {"aten::_native_batch_norm_legit_no_training", batch_norm},
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_group_norm", group_norm},
      {"aten::max_pool2d_with_indices", max_pool},
      {"aten::avg_pool2d", avg_pool},
      {"aten::_adaptive_avg_pool2d", adaptive_pool("AveragePool", "ReduceMean")},
      {"aten::adaptive_max_pool2d", adaptive_pool("MaxPool", "ReduceMax")},
      {"aten::sum", reduction("ReduceSum")},
      {"aten::sum.dim_IntList", reduction("ReduceSum")},
      {"aten::mean", reduction("ReduceMean")},
      {"aten::mean.dim", reduction("ReduceMean")},
      {"aten::cumsum", cumulative_sum},
      {"aten::amax", reduction("ReduceMax")},
      {"aten::amin", reduction("ReduceMin")},
      {"aten::max.dim", extreme("ReduceMax", "ArgMax")},
      {"aten::min.dim", extreme("ReduceMin", "ArgMin")},
      {"aten::argmax", place_of_extreme("ArgMax")},
      {"aten::argmin", place_of_extreme("ArgMin")},
      {"aten::topk", top_k},
      {"aten::_softmax", soft_maximum("Softmax")},
      {"aten::_log_softmax", soft_maximum("LogSoftmax")},
      {"aten::upsample_nearest2d", upsampling("nearest")},
      {"aten::upsample_bilinear2d", upsampling("linear")},
      {"aten::embedding", embedding},
  };
  return table;
}

}  // namespace tensorpack::detail
