// SPDX-License-Identifier: Apache-2.0
// Field numbers are those of onnx.proto, version 3.
#include "tensorpack/export/detail/onnx_graph.h"

#include <ATen/ATen.h>

#include <limits>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {
namespace {

constexpr int kIrVersion = 8;  // the one that came with opset 17

ProtoWriter value_info(const std::string& name, c10::ScalarType dtype,
                       const std::vector<OnnxDimension>& shape) {
  ProtoWriter dimensions;
  for (const OnnxDimension& size : shape) {
    ProtoWriter dimension;
    if (const auto* number = std::get_if<int64_t>(&size)) {
      dimension.integer(1, *number);
    } else {
      dimension.string(2, std::get<std::string>(size));
    }
    dimensions.message(1, dimension);
  }
  ProtoWriter tensor, type, info;
  tensor.integer(1, onnx_type(dtype));
  tensor.message(2, dimensions);
  type.message(1, tensor);
  info.string(1, name);
  info.message(2, type);
  return info;
}

ProtoWriter to_proto(const OnnxAttribute& attribute) {
  enum Type { kFloat = 1, kInt = 2, kString = 3, kInts = 7 };
  ProtoWriter proto;
  proto.string(1, attribute.name);
  if (const auto* number = std::get_if<float>(&attribute.value)) {
    proto.number(2, *number);
    proto.integer(20, kFloat);
  } else if (const auto* integer = std::get_if<int64_t>(&attribute.value)) {
    proto.integer(3, *integer);
    proto.integer(20, kInt);
  } else if (const auto* text = std::get_if<std::string>(&attribute.value)) {
    proto.string(4, *text);
    proto.integer(20, kString);
  } else {
    for (int64_t item : std::get<std::vector<int64_t>>(attribute.value)) proto.integer(8, item);
    proto.integer(20, kInts);
  }
  return proto;
}

}  // namespace

int onnx_type(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return 1;
    case at::kByte:
      return 2;
    case at::kChar:
      return 3;
    case at::kShort:
      return 5;
    case at::kInt:
      return 6;
    case at::kLong:
      return 7;
    case at::kBool:
      return 9;
    case at::kHalf:
      return 10;
    case at::kDouble:
      return 11;
    case at::kBFloat16:
      return 16;
    default:
      return 0;
  }
}

std::string OnnxGraph::unique(const std::string& hint) {
  std::string name = hint;
  while (!names_.insert(name).second) name = fmt::format("{}_{}", hint, ++count_);
  return name;
}

void OnnxGraph::add_input(const std::string& name, c10::ScalarType dtype,
                          const std::vector<OnnxDimension>& shape) {
  names_.insert(name);
  inputs_.message(11, value_info(name, dtype, shape));
}

void OnnxGraph::add_output(const std::string& name, const std::string& value, c10::ScalarType dtype,
                           const std::vector<OnnxDimension>& shape) {
  ProtoWriter identity;
  identity.string(1, value);
  identity.string(2, name);
  identity.string(3, "output/" + name);
  identity.string(4, "Identity");
  nodes_.message(1, identity);
  outputs_.message(12, value_info(name, dtype, shape));
}

std::string OnnxGraph::constant(const at::Tensor& tensor, const std::string& hint) {
  const at::Tensor elements = tensor.detach().cpu().contiguous();
  const std::string name = unique(hint);
  ProtoWriter proto;
  for (int64_t size : elements.sizes()) proto.integer(1, size);
  proto.integer(2, onnx_type(elements.scalar_type()));
  proto.string(8, name);
  proto.string(9, {static_cast<const char*>(elements.data_ptr()), elements.nbytes()});
  initializers_.message(5, proto);
  return name;
}

std::string OnnxGraph::integers(const std::vector<int64_t>& values) {
  return constant(at::tensor(values, at::kLong), "integers");
}

std::vector<std::string> OnnxGraph::nodes(const std::string& type,
                                          const std::vector<std::string>& inputs,
                                          const std::vector<OnnxAttribute>& attributes,
                                          size_t results) {
  const std::string name = unique(layer_.empty() ? type : layer_ + "/" + type);
  ProtoWriter proto;
  for (const std::string& input : inputs) proto.string(1, input);
  std::vector<std::string> outputs;
  for (size_t i = 0; i < results; ++i) {
    outputs.push_back(unique(fmt::format("{}:{}", name, i)));
    proto.string(2, outputs.back());
  }
  proto.string(3, name);
  proto.string(4, type);
  for (const OnnxAttribute& attribute : attributes) proto.message(5, to_proto(attribute));
  nodes_.message(1, proto);
  return outputs;
}

std::string OnnxGraph::serialize(int opset) const {
  const size_t bytes = nodes_.bytes().size() + initializers_.bytes().size();
  TP_CHECK(bytes < static_cast<size_t>(std::numeric_limits<int32_t>::max()), "export_onnx",
           "the model takes {}, and a file of this format holds less than 2 GiB. Use "
           "export_model().",
           humanize_bytes(bytes));
  ProtoWriter set, model;
  set.string(1, "");
  set.integer(2, opset);
  std::string graph = nodes_.bytes();
  ProtoWriter name;
  name.string(2, "model");
  graph += name.bytes() + initializers_.bytes() + inputs_.bytes() + outputs_.bytes();
  model.integer(1, kIrVersion);
  model.string(2, "tensorpack");
  model.string(3, TENSORPACK_VERSION);
  model.string(7, graph);
  model.message(8, set);
  return model.bytes();
}

}  // namespace tensorpack::detail
