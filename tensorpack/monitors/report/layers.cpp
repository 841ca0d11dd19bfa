// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report/layers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tensorpack/graph/gradient_scopes.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack::report {
namespace {

// Lists that nobody reads to their ends would only make the file large.
constexpr size_t kMaxOperators = 40;
constexpr size_t kMaxAllOperators = 3000;

std::string shape_text(at::IntArrayRef sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

// Of the first result.
std::string result_shape(const Trace& trace, const Node& node) {
  std::string text;
  node.for_each_result([&](ValueId id) {
    if (text.empty()) text = shape_text(trace.values[static_cast<size_t>(id)].sizes);
  });
  return text;
}

std::string batch_shape(const Shape& shape) {
  if (shape.empty()) return "[]";
  if (shape.size() == 1) return "[N]";
  return fmt::format("[N, {}]", fmt::join(shape.begin() + 1, shape.end(), ", "));
}

std::string parent_of(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

}  // namespace

std::vector<Parameter> list_parameters(const VariableStore& variables) {
  std::vector<Parameter> parameters;
  for (const Variable& variable : variables.all()) {
    const bool is_of_model =
        variable.role == VariableRole::kTrainable || variable.role == VariableRole::kModel;
    if (!is_of_model || variable.is_replica()) continue;
    const at::Tensor& tensor = variable.tensor;
    parameters.push_back({.name = variable.name,
                          .shape = shape_text(tensor.sizes()),
                          .elements = tensor.numel(),
                          .bytes = tensor.numel() * static_cast<int64_t>(tensor.element_size()),
                          .dtype = c10::toString(tensor.scalar_type()),
                          .device = tensor.device().str(),
                          .is_trained = variable.is_trainable()});
  }
  return parameters;
}

std::vector<Layer> list_layers(const Trace& trace) {
  std::vector<Layer> layers;
  std::map<std::string, size_t> places;
  size_t listed = 0;
  for (const Node& node : trace.nodes) {
    const auto [path, is_backward] = layer_of_scope(node.scope);
    const auto [found, is_new] = places.emplace(path, layers.size());
    if (is_new) layers.push_back({.path = path});
    Layer& layer = layers[found->second];
    ++layer.count;
    if (layer.operators.size() < kMaxOperators && listed++ < kMaxAllOperators) {
      layer.operators.emplace_back(node.op_name() + (is_backward ? " (backward)" : ""),
                                   result_shape(trace, node));
    }
  }
  return layers;
}

void complete_layers(std::vector<Layer>& layers, const std::vector<Parameter>& parameters,
                     const std::map<std::string, TensorSpec>& outputs) {
  std::map<std::string, int64_t> elements;
  for (const Parameter& parameter : parameters) {
    if (parameter.is_trained) elements[parent_of(parameter.name)] += parameter.elements;
  }
  for (Layer& layer : layers) {
    const auto output = outputs.find(layer.path + "/output");
    if (output != outputs.end()) layer.shape = batch_shape(output->second.shape);
    layer.parameters = elements[layer.path];
  }
}

void add_times(std::vector<Layer>& layers, const std::vector<LayerTime>& times) {
  for (const LayerTime& time : times) {
    auto layer = std::find_if(layers.begin(), layers.end(),
                              [&](const Layer& one) { return one.path == time.layer; });
    if (layer == layers.end()) layer = layers.insert(layer, {.path = time.layer});
    layer->time = time;
  }
}

}  // namespace tensorpack::report
