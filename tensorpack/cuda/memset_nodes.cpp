// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/memset_nodes.h"

#include <algorithm>
#include <optional>
#include <vector>

namespace tensorpack::cuda {
namespace {

constexpr int kMemsetNode = 2;  // of cuda.h
constexpr long long kThreads = 256;
constexpr long long kMostBlocks = 2048;
constexpr long long kWordsOfThread = 4;  // at a time

// Sixteen bytes at a time, from where they are aligned.
constexpr const char* kFill = R"cuda(
struct alignas(16) Quad { unsigned word[4]; };

extern "C" __global__ void __launch_bounds__(256)
fill_words(unsigned* words, unsigned value, long long count) {
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const long long step = (long long)gridDim.x * blockDim.x;
  const long long head = min(count, (long long)((16 - (unsigned long long)words % 16) % 16 / 4));
  const long long quads = (count - head) / 4, tail = head + 4 * quads;
  Quad* aligned = (Quad*)(words + head);
  for (long long i = first; i < quads; i += step) aligned[i] = {{value, value, value, value}};
  if (first < head) words[first] = value;
  if (first < count - tail) words[tail + first] = value;
}
)cuda";

// What a memset writes, as words of four bytes.
struct Fill {
  void* words = nullptr;
  unsigned value = 0;
  long long count = 0;
};

std::optional<Fill> as_words(const MemsetParameters& memset) {
  const size_t bytes = memset.width * memset.element_size;
  if (memset.height != 1 || bytes % 4 != 0 || memset.destination % 4 != 0) return std::nullopt;
  unsigned value = memset.value;
  if (memset.element_size == 1) value = (value & 0xffu) * 0x01010101u;
  if (memset.element_size == 2) value = (value & 0xffffu) * 0x00010001u;
  return Fill{reinterpret_cast<void*>(memset.destination), value,
              static_cast<long long>(bytes / 4)};
}

unsigned blocks_for(long long words) {
  constexpr long long kWords = kThreads * kWordsOfThread;  // of a block
  return static_cast<unsigned>(std::clamp((words + kWords - 1) / kWords, 1LL, kMostBlocks));
}

using Nodes = std::vector<void*>;

// Of a function that gives a count, and then the nodes.
template <typename Query>
std::optional<Nodes> all_of(void* of, Query query) {
  size_t count = 0;
  if (query(of, nullptr, &count) != 0) return std::nullopt;
  Nodes nodes(count);
  if (count > 0 && query(of, nodes.data(), &count) != 0) return std::nullopt;
  return nodes;
}

bool replace(void* graph, void* node, void* function, const Driver& driver) {
  MemsetParameters memset;
  if (driver.memset_parameters(node, &memset) != 0) return false;
  std::optional<Fill> fill = as_words(memset);
  const auto before = all_of(node, driver.nodes_before);
  const auto after = all_of(node, driver.nodes_after);
  if (!fill || !before || !after) return false;
  void* arguments[] = {&fill->words, &fill->value, &fill->count};
  const KernelNodeParameters kernel{.function = function,
                                    .grid = {blocks_for(fill->count), 1, 1},
                                    .block = {kThreads, 1, 1},
                                    .arguments = arguments};
  void* launch = nullptr;
  if (driver.add_kernel_node(&launch, graph, before->data(), before->size(), &kernel) != 0) {
    return false;
  }
  const Nodes from(after->size(), launch);
  const bool is_joined =
      after->empty() ||
      driver.add_dependencies(graph, from.data(), after->data(), after->size()) == 0;
  return driver.destroy_node(is_joined ? node : launch) == 0 && is_joined;
}

}  // namespace

KernelSource fill_source() { return {"fill_words", kFill}; }

int replace_memsets(void* graph, void* fill, const Driver& driver) {
  const auto nodes = all_of(graph, driver.graph_nodes);
  if (!nodes) return 0;
  return static_cast<int>(std::count_if(nodes->begin(), nodes->end(), [&](void* node) {
    int type = -1;
    return driver.node_type(node, &type) == 0 && type == kMemsetNode &&
           replace(graph, node, fill, driver);
  }));
}

}  // namespace tensorpack::cuda
