// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/memory_use.h"

#include <gtest/gtest.h>

#include "tests/graph/tracing.h"

namespace tensorpack {
namespace {

TEST(MemoryUseTest, ResultsAreHeldUntilTheirLastUse) {
  const Trace trace = trace_of({at::ones({256})}, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor a = in[0].sin(), b = a.cos(), c = b.exp();  // 1 KiB each
    return {{"y", a + c}};
  });
  const MemoryUse memory(trace);
  EXPECT_EQ(memory.peak(), 3 << 10);
  EXPECT_EQ(memory.peak_position(), 2);  // a, b and c, and then a, c and y
  const StorageId b = trace.values[trace.nodes[1].results[0].ids[0]].storage;
  EXPECT_FALSE(memory.is_held(b, 0));
  EXPECT_TRUE(memory.is_held(b, 1));
  EXPECT_TRUE(memory.is_held(b, 2));
  EXPECT_FALSE(memory.is_held(b, 3));
}

TEST(MemoryUseTest, ViewsKeepTheirMemoryAndOutputsAreKeptToTheEnd) {
  const at::Tensor variable = at::ones({256});
  const Trace trace =
      trace_of({at::ones({256})}, {variable}, [&](const Tensors& in) -> NamedTensors {
        const at::Tensor a = in[0].sin(), row = a.view({1, 256});
        const at::Tensor b = in[0].cos();
        const at::Tensor c = row.exp();
        variable.add_(b);
        return {{"b", b}, {"y", c.sum()}};
      });
  const MemoryUse memory(trace);
  EXPECT_EQ(memory.peak(), 3 << 10);  // a, b and c; neither input nor variable
  const StorageId b = trace.values[trace.outputs.at("b")].storage;
  EXPECT_TRUE(memory.is_held(b, static_cast<int32_t>(trace.nodes.size()) - 1));
}

}  // namespace
}  // namespace tensorpack
