// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/dump.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "tensorpack/graph/variable_scope.h"
#include "tests/graph/tracing.h"

namespace tensorpack {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(DumpTextTest, ShowsResultsArgumentsMarksAndScope) {
  const at::Tensor w = at::ones({3});
  const Trace trace = trace_of(kOnes, {w}, [&](const Tensors& in) -> NamedTensors {
    VariableScope scope("fc");
    w.add_(in[0].sum(0), 0.5);
    return {{"y", in[0].t() * at::rand({2})}};
  });
  const std::string text = dump_text(trace);
  EXPECT_THAT(text, HasSubstr("aten::add_.Tensor($var0, %"));
  EXPECT_THAT(text, HasSubstr(" writes  @fc"));
  EXPECT_THAT(text, HasSubstr("= aten::t($in0) view"));
  EXPECT_THAT(text, HasSubstr(" random"));
  EXPECT_THAT(text, HasSubstr("output y = %"));
}

// A step with scopes, an update in place, a list and an output.
Trace example() {
  const at::Tensor w = at::ones({3});
  return trace_of(kOnes, {w}, [&](const Tensors& in) -> NamedTensors {
    VariableScope outer("net");
    at::Tensor y;
    {
      VariableScope inner("fc");
      y = (in[0] * w).exp();
    }
    w.add_(y.sum(0));
    auto parts = y.split(1);
    return {{"cost", (parts[1] * w).sum()}};
  });
}

TEST(DumpGraphvizTest, ScopesAreNestedClustersAndEdgesCarryShapes) {
  const std::string dot = dump_graphviz(example());
  EXPECT_THAT(dot, HasSubstr("digraph"));
  EXPECT_THAT(dot, HasSubstr("subgraph \"cluster_net\" {"));
  EXPECT_THAT(dot, HasSubstr("subgraph \"cluster_net/fc\" {"));
  EXPECT_THAT(dot, HasSubstr("[label=\"2x3\"]"));
  EXPECT_THAT(dot, HasSubstr("\"in0\" -> \"net/fc/mul\""));
  EXPECT_LT(dot.find("cluster_net\""), dot.find("cluster_net/fc\""));
}

TEST(DumpGraphvizTest, BracesAndQuotesBalance) {
  const std::string dot = dump_graphviz(example());
  int depth = 0;
  bool quoted = false;
  for (char c : dot) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    ASSERT_GE(depth, 0);
  }
  EXPECT_EQ(depth, 0);
  EXPECT_FALSE(quoted);
}

TEST(DumpGraphvizTest, ReadersDependOnTheLastWrite) {
  EXPECT_THAT(dump_graphviz(example()), HasSubstr("\"net/add_\" -> \"net/mul\""));
}

// Just enough of a protocol buffer reader: fields of one message, in order.
struct Field {
  int number;
  uint64_t integer;
  std::string bytes;
};

std::vector<Field> fields_of(const std::string& message) {
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  };
  std::vector<Field> fields;
  while (at < message.size()) {
    const uint64_t tag = varint();
    Field field{static_cast<int>(tag >> 3), 0, ""};
    if ((tag & 7) == 2) {
      const uint64_t size = varint();
      field.bytes = message.substr(at, size);
      at += size;
    } else {
      field.integer = varint();
    }
    fields.push_back(field);
  }
  return fields;
}

struct DecodedNode {
  std::string op;
  std::vector<std::string> inputs;
  std::vector<std::vector<int64_t>> shapes;
};

std::map<std::string, DecodedNode> decode(const std::string& graph_def) {
  std::map<std::string, DecodedNode> nodes;
  for (const Field& node : fields_of(graph_def)) {
    if (node.number != 1) continue;
    std::string name;
    DecodedNode decoded;
    for (const Field& field : fields_of(node.bytes)) {
      if (field.number == 1) name = field.bytes;
      if (field.number == 2) decoded.op = field.bytes;
      if (field.number == 3) decoded.inputs.push_back(field.bytes);
      if (field.number != 5) continue;
      const std::vector<Field> entry = fields_of(field.bytes);
      EXPECT_EQ(entry.at(0).bytes, "_output_shapes");
      const Field list = fields_of(entry.at(1).bytes).at(0);
      EXPECT_EQ(list.number, 1);
      for (const Field& shape : fields_of(list.bytes)) {
        EXPECT_EQ(shape.number, 7);
        std::vector<int64_t> extents;
        for (const Field& dimension : fields_of(shape.bytes)) {
          extents.push_back(static_cast<int64_t>(fields_of(dimension.bytes).at(0).integer));
        }
        decoded.shapes.push_back(extents);
      }
    }
    EXPECT_TRUE(nodes.emplace(name, decoded).second) << name << " occurs twice";
  }
  return nodes;
}

TEST(DumpGraphDefTest, NodesHaveScopedNamesOpsInputsAndShapes) {
  const auto nodes = decode(dump_graph_def(example()));
  EXPECT_EQ(nodes.at("in0").op, "Placeholder");
  EXPECT_THAT(nodes.at("in0").shapes, ElementsAre(ElementsAre(2, 3)));
  EXPECT_EQ(nodes.at("var0").op, "Variable");
  EXPECT_EQ(nodes.at("net/fc/mul").op, "aten::mul.Tensor");
  EXPECT_THAT(nodes.at("net/fc/mul").inputs, ElementsAre("in0", "var0"));
  EXPECT_THAT(nodes.at("net/fc/exp").inputs, ElementsAre("net/fc/mul"));
  EXPECT_THAT(nodes.at("net/split").shapes, testing::SizeIs(2));
  EXPECT_THAT(nodes.at("net/mul").inputs, ElementsAre("net/split:1", "net/add_"));
  EXPECT_THAT(nodes.at("cost").inputs, ElementsAre("net/sum_1"));
}

TEST(DumpGraphDefTest, EveryInputIsANode) {
  const auto nodes = decode(dump_graph_def(example()));
  for (const auto& [name, node] : nodes) {
    for (const std::string& input : node.inputs) {
      EXPECT_TRUE(nodes.contains(input.substr(0, input.find(':')))) << input;
    }
  }
}

}  // namespace
}  // namespace tensorpack
