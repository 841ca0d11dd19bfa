// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/generator_state.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(GeneratorStateTest, RestoredGeneratorRepeatsItsNumbers) {
  const Graph graph;
  at::manual_seed(1);
  at::rand({3});
  const auto states = save_generators(graph);
  const at::Tensor expected = at::rand({5});
  at::manual_seed(2);
  restore_generators(graph, states);
  EXPECT_TRUE(at::equal(at::rand({5}), expected));
}

TEST(GeneratorStateTest, WithoutAStateNothingChanges) {
  const Graph graph;
  at::manual_seed(3);
  const at::Tensor expected = at::rand({5});
  at::manual_seed(3);
  restore_generators(graph, {{"other", "entry"}});
  EXPECT_TRUE(at::equal(at::rand({5}), expected));
}

TEST(GeneratorStateTest, DamagedStateIsAnError) {
  const Graph graph;
  EXPECT_THAT(
      [&] {
        restore_generators(graph, {{"generator/cpu", "12x4"}});
      },
      ThrowsMessage<Error>(HasSubstr("the state of 'generator/cpu' in the checkpoint is "
                                     "damaged.")));
  EXPECT_THAT(
      [&] {
        restore_generators(graph, {{"generator/cpu", "1234"}});
      },
      ThrowsMessage<Error>(HasSubstr("does not fit")));
}

}  // namespace
}  // namespace tensorpack
