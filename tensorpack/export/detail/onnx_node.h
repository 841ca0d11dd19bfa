// SPDX-License-Identifier: Apache-2.0
// What a mapping of an operator to ONNX sees: one node of the program, and the graph to add to.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/export/detail/onnx_graph.h"
#include "tensorpack/export/exported_program.h"

namespace tensorpack::detail {

/// The state of a conversion: which ONNX value each value of the program is by now.
class OnnxConversion {
 public:
  explicit OnnxConversion(const ExportedProgram& program);

  /// Converts the node by the mapping of its operator.
  void add(const ExportedNode& node);
  void add_outputs();
  OnnxGraph& graph() { return graph_; }

 private:
  friend class OnnxNode;
  std::string name_of(ExportedId id);
  std::string batch();
  std::string extent(const Extent& extent);

  const ExportedProgram& program_;
  OnnxGraph graph_;
  std::map<ExportedId, const ExportedConstant*> constants_;
  std::map<ExportedId, std::string> names_;
  std::string batch_;
};

/// One node. Arguments that are not given have the default that the mapping says, which is that of
/// the schema. What ONNX has no way to say is refused by an Error that names operator and layer.
class OnnxNode {
 public:
  OnnxNode(OnnxConversion& conversion, const ExportedNode& node)
      : conversion_(conversion), node_(node) {}

  // ---- arguments

  bool given(const std::string& name) const;
  /// The ONNX value of a tensor; "" if there is none.
  std::string in(const std::string& name);
  /// The same, converted to a type.
  std::string in(const std::string& name, c10::ScalarType dtype);
  /// The same, where the argument may also be a number.
  std::string operand(const std::string& name, c10::ScalarType dtype);
  /// Whether the argument is a number, given as such or in the place of a tensor.
  bool is_number(const std::string& name) const;
  std::vector<std::string> ins(const std::string& name);
  std::vector<std::string> ins(const std::string& name, c10::ScalarType dtype);
  /// A tensor that is part of the model; undefined if it is computed.
  at::Tensor constant(const std::string& name) const;
  bool flag(const std::string& name, bool standard) const;
  int64_t integer(const std::string& name, std::optional<int64_t> standard = {}) const;
  double number(const std::string& name, double standard) const;
  std::string text(const std::string& name, std::string standard) const;
  std::vector<int64_t> integers(const std::string& name) const;
  /// As integers(), but one for each of `count` dimensions: a single one stands for all.
  std::vector<int64_t> integers(const std::string& name, size_t count) const;
  std::vector<Extent> extents(const std::string& name) const;

  // ---- what is known of tensors

  c10::ScalarType dtype(const std::string& name) const { return value(name).dtype; }
  const std::vector<Extent>& shape(const std::string& name) const { return value(name).shape; }
  int64_t rank(const std::string& name) const { return static_cast<int64_t>(shape(name).size()); }
  /// The dimension counted from the front.
  int64_t axis(int64_t dim, int64_t rank) const;
  /// Sizes of the last `count` dimensions, which must not follow from the batch.
  std::vector<int64_t> last_sizes(const std::string& name, size_t count) const;
  const ExportedValue& result_value(size_t index = 0) const;
  size_t result_count() const { return node_.results.at(0).ids.size(); }

  // ---- building

  std::string emit(const std::string& type, const std::vector<std::string>& inputs,
                   const std::vector<OnnxAttribute>& attributes = {});
  std::vector<std::string> emit(const std::string& type, const std::vector<std::string>& inputs,
                                const std::vector<OnnxAttribute>& attributes, size_t results);
  std::string cast(const std::string& value, c10::ScalarType dtype);
  /// A constant of one element.
  std::string scalar(double value, c10::ScalarType dtype);
  std::string constant(const at::Tensor& tensor) { return conversion_.graph_.constant(tensor); }
  /// A list of integers as a tensor.
  std::string list(const std::vector<int64_t>& values) {
    return conversion_.graph_.integers(values);
  }
  /// The same, where some follow from the batch.
  std::string list(const std::vector<Extent>& values);

  /// Says what a result is. Those that are not said must not be used by the program.
  void give(const std::string& value, size_t index = 0);
  void give_list(const std::vector<std::string>& values);

  void check(bool condition, const std::string& what) const;

 private:
  const ExportedArgument* find(const std::string& name) const;
  ExportedId id(const std::string& name) const;
  const ExportedValue& value(const std::string& name) const;
  std::string as(ExportedId id, c10::ScalarType dtype);
  int64_t fixed(const Extent& extent, const std::string& name) const;

  OnnxConversion& conversion_;
  const ExportedNode& node_;
};

using OnnxMapping = std::function<void(OnnxNode&)>;

/// By the names of functional operators: those that work in place have the mappings of these.
const std::map<std::string, OnnxMapping>& onnx_pointwise();
const std::map<std::string, OnnxMapping>& onnx_layers();
const std::map<std::string, OnnxMapping>& onnx_shapes();

}  // namespace tensorpack::detail
