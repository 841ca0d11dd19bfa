// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <set>

#include "tensorpack/graph/dump.h"
#include "tensorpack/utils/protobuf.h"

namespace tensorpack {
namespace {

// What a viewer draws: an operator, or where a value comes from.
struct Vertex {
  std::string name;  // unique; scopes are what is before the last '/'
  std::string op;
  struct Input {
    size_t vertex;
    size_t output;
    std::vector<int64_t> shape;
  };
  std::vector<Input> inputs = {};
  std::vector<std::vector<int64_t>> shapes = {};  // of the outputs
};

class VertexList {
 public:
  explicit VertexList(const Trace& trace) : trace_(trace), sources_(trace.values.size()) {
    for (size_t i = 0; i < trace.values.size(); ++i) add_external(static_cast<ValueId>(i));
    for (const Node& node : trace.nodes) add_node(node);
    for (const auto& [name, id] : trace.outputs) {
      const size_t vertex =
          add({.name = name, .op = "Identity", .shapes = {trace.values[id].sizes}});
      connect(vertex, id);
    }
  }

  const std::vector<Vertex>& vertices() const { return vertices_; }

 private:
  struct Source {
    int64_t vertex = -1;
    size_t output = 0;
  };

  size_t add(Vertex vertex) {
    const std::string base = vertex.name;
    for (int suffix = 1; !names_.insert(vertex.name).second; ++suffix) {
      vertex.name = fmt::format("{}_{}", base, suffix);
    }
    vertices_.push_back(std::move(vertex));
    return vertices_.size() - 1;
  }

  void add_external(ValueId id) {
    const Value& value = trace_.values[id];
    if (value.kind == ValueKind::kComputed) return;
    if (value.kind == ValueKind::kConstant) return;  // where it is used: most are plain numbers
    const char* op = value.kind == ValueKind::kInput ? "Placeholder" : "Variable";
    sources_[id].vertex =
        static_cast<int64_t>(add({.name = value.name, .op = op, .shapes = {value.sizes}}));
  }

  void add_constant(ValueId id, const std::string& scope) {
    if (sources_[id].vertex >= 0 || trace_.values[id].kind != ValueKind::kConstant) return;
    sources_[id].vertex = static_cast<int64_t>(
        add({.name = scope + "const", .op = "Const", .shapes = {trace_.values[id].sizes}}));
  }

  void add_node(const Node& node) {
    const std::string scope = node.scope.empty() ? "" : node.scope + "/";
    node.for_each_argument([&](ValueId id) { add_constant(id, scope); });
    std::string short_name = node.op.operator_name().name;
    short_name = short_name.substr(short_name.rfind(':') + 1);
    const size_t vertex = add({.name = scope + short_name, .op = node.op_name()});
    node.for_each_argument([&](ValueId id) { connect(vertex, id); });
    // A value that is written in place comes from its last writer.
    node.for_each_result([&](ValueId id) {
      sources_[id] = {static_cast<int64_t>(vertex), vertices_[vertex].shapes.size()};
      vertices_[vertex].shapes.push_back(trace_.values[id].sizes);
    });
  }

  void connect(size_t vertex, ValueId id) {
    const Source& source = sources_[id];
    if (source.vertex < 0) return;
    vertices_[vertex].inputs.push_back(
        {static_cast<size_t>(source.vertex), source.output, trace_.values[id].sizes});
  }

  const Trace& trace_;
  std::vector<Source> sources_;
  std::vector<Vertex> vertices_;
  std::set<std::string> names_;
};

std::string scope_of(const std::string& name) {
  const size_t slash = name.rfind('/');
  return slash == std::string::npos ? "" : name.substr(0, slash);
}

// The statements of all vertices in `scope`, then the scopes inside it.
void print_scope(const std::multimap<std::string, const Vertex*>& by_scope,
                 const std::string& scope, const std::string& indent, std::string& text) {
  auto [begin, end] = by_scope.equal_range(scope);
  for (auto entry = begin; entry != end; ++entry) {
    const Vertex& vertex = *entry->second;
    const bool is_data = vertex.inputs.empty() || vertex.op == "Identity";
    text +=
        fmt::format("{}\"{}\" [label=\"{}\", shape={}];\n", indent, vertex.name,
                    vertex.name.substr(vertex.name.rfind('/') + 1), is_data ? "ellipse" : "box");
  }
  const std::string prefix = scope.empty() ? "" : scope + "/";
  std::set<std::string> inner;
  for (auto entry = by_scope.lower_bound(prefix); entry != by_scope.end(); ++entry) {
    const std::string& path = entry->first;
    if (path.rfind(prefix, 0) != 0) break;
    if (path.size() > prefix.size()) inner.insert(path.substr(0, path.find('/', prefix.size())));
  }
  for (const std::string& path : inner) {
    text += fmt::format("{}subgraph \"cluster_{}\" {{\n{}  label=\"{}\";\n", indent, path, indent,
                        path.substr(prefix.size()));
    print_scope(by_scope, path, indent + "  ", text);
    text += indent + "}\n";
  }
}

ProtoWriter output_shapes(const Vertex& vertex) {
  ProtoWriter list;
  for (const std::vector<int64_t>& extents : vertex.shapes) {
    ProtoWriter shape;
    for (int64_t extent : extents) {
      ProtoWriter dimension;
      dimension.integer(1, extent);
      shape.message(2, dimension);
    }
    list.message(7, shape);
  }
  ProtoWriter value;
  value.message(1, list);
  ProtoWriter entry;
  entry.string(1, "_output_shapes");
  entry.message(2, value);
  return entry;
}

}  // namespace

std::string dump_graphviz(const Trace& trace) {
  const VertexList list(trace);
  std::multimap<std::string, const Vertex*> by_scope;
  for (const Vertex& vertex : list.vertices()) by_scope.emplace(scope_of(vertex.name), &vertex);
  std::string text = "digraph trace {\n  node [fontname=\"sans\", fontsize=10];\n";
  print_scope(by_scope, "", "  ", text);
  for (const Vertex& vertex : list.vertices()) {
    for (const Vertex::Input& input : vertex.inputs) {
      text +=
          fmt::format("  \"{}\" -> \"{}\" [label=\"{}\"];\n", list.vertices()[input.vertex].name,
                      vertex.name, fmt::join(input.shape, "x"));
    }
  }
  return text + "}\n";
}

std::string dump_graph_def(const Trace& trace) {
  const VertexList list(trace);
  ProtoWriter graph;
  for (const Vertex& vertex : list.vertices()) {
    ProtoWriter node;
    node.string(1, vertex.name);
    node.string(2, vertex.op);
    for (const Vertex::Input& input : vertex.inputs) {
      const std::string& name = list.vertices()[input.vertex].name;
      node.string(3, input.output == 0 ? name : fmt::format("{}:{}", name, input.output));
    }
    node.message(5, output_shapes(vertex));
    graph.message(1, node);
  }
  ProtoWriter versions;
  versions.integer(1, 22);  // of GraphDef; TensorBoard accepts any recent one
  graph.message(4, versions);
  return graph.bytes();
}

}  // namespace tensorpack
