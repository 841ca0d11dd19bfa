// SPDX-License-Identifier: Apache-2.0
// Memsets of a graph become kernels, in a driver of the test's own.
#include "tensorpack/cuda/memset_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>
#include <vector>

#include "tests/cuda/host_device.h"

namespace tensorpack::cuda {
namespace {

struct FakeNode {
  int type = 0;  // 0: a kernel, 2: a memset
  MemsetParameters memset = {};
  unsigned blocks = 0, value = 0;
  long long count = 0;
  bool is_gone = false;
};

struct FakeGraph {
  std::deque<FakeNode> nodes = {};
  std::vector<std::pair<void*, void*>> edges = {};
};

FakeGraph graph;

int give(const std::vector<void*>& found, void** nodes, size_t* count) {
  if (nodes != nullptr) std::copy(found.begin(), found.end(), nodes);
  *count = found.size();
  return 0;
}

Driver fake_driver() {
  Driver driver;
  driver.graph_nodes = [](void*, void** nodes, size_t* count) {
    std::vector<void*> found;
    for (FakeNode& node : graph.nodes) found.push_back(&node);
    return give(found, nodes, count);
  };
  driver.node_type = [](void* node, int* type) {
    *type = static_cast<FakeNode*>(node)->type;
    return 0;
  };
  driver.nodes_before = [](void* node, void** nodes, size_t* count) {
    std::vector<void*> found;
    for (auto [from, to] : graph.edges) {
      if (to == node) found.push_back(from);
    }
    return give(found, nodes, count);
  };
  driver.nodes_after = [](void* node, void** nodes, size_t* count) {
    std::vector<void*> found;
    for (auto [from, to] : graph.edges) {
      if (from == node) found.push_back(to);
    }
    return give(found, nodes, count);
  };
  driver.memset_parameters = [](void* node, MemsetParameters* parameters) {
    *parameters = static_cast<FakeNode*>(node)->memset;
    return 0;
  };
  driver.add_kernel_node = [](void** node, void*, void* const* before, size_t count,
                              const KernelNodeParameters* parameters) {
    FakeNode made{.blocks = parameters->grid[0]};
    made.value = *static_cast<unsigned*>(parameters->arguments[1]);
    made.count = *static_cast<long long*>(parameters->arguments[2]);
    graph.nodes.push_back(made);
    *node = &graph.nodes.back();
    for (size_t i = 0; i < count; ++i) graph.edges.emplace_back(before[i], *node);
    return 0;
  };
  driver.add_dependencies = [](void*, void* const* from, void* const* to, size_t count) {
    for (size_t i = 0; i < count; ++i) graph.edges.emplace_back(from[i], to[i]);
    return 0;
  };
  driver.destroy_node = [](void* node) {
    static_cast<FakeNode*>(node)->is_gone = true;
    std::erase_if(graph.edges,
                  [&](const auto& edge) { return edge.first == node || edge.second == node; });
    return 0;
  };
  return driver;
}

TEST(MemsetNodesTest, AMemsetBecomesAKernelBetweenTheSameNodes) {
  graph = {};
  graph.nodes = {{.type = 0}, {.type = 2, .memset = {.value = 7, .width = 4000}}, {.type = 0}};
  graph.edges = {{&graph.nodes[0], &graph.nodes[1]}, {&graph.nodes[1], &graph.nodes[2]}};
  EXPECT_EQ(replace_memsets(&graph, nullptr, fake_driver()), 1);
  ASSERT_EQ(graph.nodes.size(), 4);
  EXPECT_TRUE(graph.nodes[1].is_gone);
  const FakeNode& kernel = graph.nodes[3];
  EXPECT_EQ(kernel.value, 0x07070707u);
  EXPECT_EQ(kernel.count, 1000);
  EXPECT_EQ(kernel.blocks, 1);
  const std::vector<std::pair<void*, void*>> expected = {{&graph.nodes[0], &graph.nodes[3]},
                                                         {&graph.nodes[3], &graph.nodes[2]}};
  EXPECT_EQ(graph.edges, expected);
}

TEST(MemsetNodesTest, WhatIsNotOfWholeWordsStays) {
  graph = {};
  graph.nodes = {{.type = 2, .memset = {.width = 3}},
                 {.type = 2, .memset = {.destination = 2, .width = 4}},
                 {.type = 2, .memset = {.width = 4, .height = 2}}};
  EXPECT_EQ(replace_memsets(&graph, nullptr, fake_driver()), 0);
  EXPECT_EQ(graph.nodes.size(), 3);
}

TEST(MemsetNodesTest, WhatTheDriverRefusesStays) {
  graph = {};
  graph.nodes = {{.type = 0}, {.type = 2, .memset = {.width = 4}}, {.type = 0}};
  graph.edges = {{&graph.nodes[1], &graph.nodes[2]}};
  Driver driver = fake_driver();
  driver.add_dependencies = [](void*, void* const*, void* const*, size_t) { return 1; };
  EXPECT_EQ(replace_memsets(&graph, nullptr, driver), 0);
  EXPECT_FALSE(graph.nodes[1].is_gone);
  EXPECT_TRUE(graph.nodes[3].is_gone);
}

TEST(MemsetNodesTest, TheKernelFillsTheseWordsAndNoOthers) {
  for (const long long begin : {0, 1, 3, 4}) {
    for (const long long count : {0, 1, 2, 3, 5, 8, 991}) {
      alignas(16) std::array<unsigned, 1000> words = {};
      HostLauncher()(fill_source(), {.grid = {2, 1}, .block = {256, 1}}, words.data() + begin, 5u,
                     count);
      for (long long i = 0; i < 1000; ++i) {
        const bool is_inside = i >= begin && i < begin + count;
        ASSERT_EQ(words[static_cast<size_t>(i)], is_inside ? 5u : 0u) << begin << " " << count;
      }
    }
  }
}

}  // namespace
}  // namespace tensorpack::cuda
