// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/trace_editor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/utils/find_operator.h"
#include "tests/graph/tracing.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ValueId result_of(const Trace& trace, int32_t node) { return trace.nodes[node].results[0].ids[0]; }

TEST(TraceEditorTest, TellsWhoReadsAValueAndWhoWritesItsMemory) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor y = in[0].exp();  // 0
    const at::Tensor z = y.sin() + y;  // 1, 2
    y.add_(1);                         // 3
    return {{"z", z}};
  });
  const TraceEditor editor(trace);
  const ValueId y = result_of(trace, 0);
  EXPECT_THAT(editor.readers(y), ElementsAre(1, 2, 3));
  EXPECT_THAT(editor.writers(trace.values[y].storage), ElementsAre(3));
  EXPECT_THAT(editor.writers(trace.values[trace.inputs[0]].storage), IsEmpty());
  EXPECT_TRUE(editor.is_output(result_of(trace, 2)));
  EXPECT_EQ(editor.producer(y), &trace.nodes[0]);
  EXPECT_EQ(editor.producer(trace.inputs[0]), nullptr);
}

TEST(TraceEditorTest, AValueIsPrivateUnlessItIsNamedWrittenOrViewed) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor alone = in[0].exp();    // 0
    const at::Tensor named = alone.sin();    // 1
    const at::Tensor written = in[0].cos();  // 2
    written.add_(1);                         // 3
    const at::Tensor viewed = in[0].tan();   // 4
    return {{"named", named}, {"sum", written + viewed.view({3, 2}).sum()}};
  });
  const TraceEditor editor(trace);
  EXPECT_TRUE(editor.is_private(result_of(trace, 0)));
  EXPECT_FALSE(editor.is_private(result_of(trace, 1)));
  EXPECT_FALSE(editor.is_private(result_of(trace, 2)));
  EXPECT_FALSE(editor.is_private(result_of(trace, 4)));
  EXPECT_FALSE(editor.is_private(trace.inputs[0]));
}

TEST(TraceEditorTest, ANodeMayMoveBetweenWhatItNeedsAndWhoNeedsIt) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor a = in[0].exp();  // 0
    const at::Tensor b = in[0].sin();  // 1
    const at::Tensor c = a.cos();      // 2
    const at::Tensor d = b.tan();      // 3
    return {{"y", d + c}};             // 4
  });
  const TraceEditor editor(trace);
  const auto interval = editor.interval_of({2});
  EXPECT_EQ(interval.earliest, 1);
  EXPECT_EQ(interval.latest, 4);
  const auto group = editor.interval_of({1, 3});
  EXPECT_EQ(group.earliest, 0);
  EXPECT_EQ(group.latest, 4);
}

TEST(TraceEditorTest, ANodeDoesNotMoveAcrossWritesOfWhatItReads) {
  const at::Tensor w = at::ones({3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors& in) -> NamedTensors {
    w.add_(1);                         // 0
    const at::Tensor a = w.exp();      // 1
    const at::Tensor b = in[0].sin();  // 2
    w.narrow(0, 0, 1).mul_(2);         // 3, 4
    return {{"y", a + b}};             // 5
  });
  const TraceEditor editor(trace);
  const auto reader = editor.interval_of({1});
  EXPECT_EQ(reader.earliest, 1);
  EXPECT_EQ(reader.latest, 4);
  const auto writer = editor.interval_of({0});
  EXPECT_EQ(writer.latest, 1);
}

TEST(TraceEditorTest, NodesAreFusedWhereBothMayStand) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor a = in[0].exp();
    const at::Tensor b = in[0].sin();
    return {{"y", a.neg() + b}};
  });
  const at::Tensor expected = run(trace, kInput, "y");
  TraceEditor editor(trace);
  Node fused{.op = find_operator("aten::neg"), .keys = trace.nodes[2].keys};
  fused.arguments = trace.nodes[2].arguments;
  fused.results = trace.nodes[2].results;
  fused.reads = trace.nodes[2].reads;
  ASSERT_TRUE(editor.fuse({2}, fused));
  EXPECT_THAT(operators(trace),
              ElementsAre("aten::exp", "aten::sin", "aten::neg", "aten::add.Tensor"));
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), expected));
}

TEST(TraceEditorTest, NodesWithAWriteInBetweenAreNotFused) {
  const at::Tensor w = at::ones({3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors&) -> NamedTensors {
    const at::Tensor before = w.exp();  // 0
    w.add_(1);                          // 1
    return {{"y", before + w.exp()}};   // 2, 3
  });
  TraceEditor editor(trace);
  EXPECT_FALSE(editor.fuse({0, 2}, trace.nodes[0]));
  EXPECT_EQ(trace.nodes.size(), 4U);
}

TEST(TraceEditorTest, UsesAreReplacedFromANodeOn) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor a = in[0].exp();       // 0
    const at::Tensor b = in[0].sin();       // 1
    return {{"y", a.cos() + a}, {"b", b}};  // 2, 3
  });
  TraceEditor editor(trace);
  editor.replace_uses(result_of(trace, 0), result_of(trace, 1), 3);
  editor.commit();
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), kInput[0].exp().cos() + kInput[0].sin()));
  EXPECT_THAT(editor.readers(result_of(trace, 1)), ElementsAre(3));
}

TEST(TraceEditorTest, InsertedAndRemovedNodesKeepTheirProducers) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp().sin()}};
  });
  TraceEditor editor(trace);
  Node copy = trace.nodes[0];
  editor.remove(0);
  editor.insert(1, copy);
  editor.commit();
  EXPECT_THAT(operators(trace), ElementsAre("aten::exp", "aten::sin"));
  EXPECT_EQ(trace.values[result_of(trace, 0)].producer, 0);
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), kInput[0].exp().sin()));
}

}  // namespace
}  // namespace tensorpack
