// SPDX-License-Identifier: Apache-2.0
// Builds an ONNX model, node after node, and writes its bytes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tensorpack/utils/protobuf.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>> value;
};

/// A dimension: a number, or a name for one that is open.
using OnnxDimension = std::variant<int64_t, std::string>;

/// The number of a type in ONNX; 0 if it has none.
int onnx_type(c10::ScalarType dtype);

/// A graph whose values are known by names.
class OnnxGraph {
 public:
  void add_input(const std::string& name, c10::ScalarType dtype,
                 const std::vector<OnnxDimension>& shape);
  /// Gives a value to the outside under this name.
  void add_output(const std::string& name, const std::string& value, c10::ScalarType dtype,
                  const std::vector<OnnxDimension>& shape);
  /// A tensor that is part of the model; returns its name, made of `hint`.
  std::string constant(const at::Tensor& tensor, const std::string& hint = "constant");
  /// A list of integers, for shapes and axes.
  std::string integers(const std::vector<int64_t>& values);
  /// A node with several results; returns their names.
  std::vector<std::string> nodes(const std::string& type, const std::vector<std::string>& inputs,
                                 const std::vector<OnnxAttribute>& attributes, size_t results);
  /// A node with one result; returns its name. An input "" is left out.
  std::string node(const std::string& type, const std::vector<std::string>& inputs,
                   const std::vector<OnnxAttribute>& attributes = {}) {
    return nodes(type, inputs, attributes, 1)[0];
  }
  /// Put before the names of nodes from now on.
  void set_layer(std::string layer) { layer_ = std::move(layer); }

  /// The bytes of the model. Throws an Error beyond the 2 GiB that the format can hold.
  std::string serialize(int opset) const;

 private:
  std::string unique(const std::string& hint);

  std::string layer_;
  std::set<std::string> names_;
  size_t count_ = 0;
  ProtoWriter nodes_, initializers_, inputs_, outputs_;
};

}  // namespace tensorpack::detail
