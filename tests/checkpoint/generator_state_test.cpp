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

TEST(GeneratorStateTest, WhatIsThereIsRestoredThoughOthersAreMissing) {
  Graph graph;
  for (const char* name : {"a", "b"}) {
    graph.define({.name = name, .body = [](const auto&) -> NamedTensors {
                    return {{"y", at::rand({2})}};
                  }});
  }
  StateTexts states = save_generators(graph);
  ASSERT_GT(states.size(), 1U);
  for (const auto& [name, generator] : graph.generators()) at::rand({3}, generator);
  at::rand({3});
  const StateTexts later = save_generators(graph);
  const std::string missing = states.begin()->first;
  states.erase(missing);
  restore_generators(graph, states);
  for (const auto& [name, state] : save_generators(graph)) {
    EXPECT_EQ(state, name == missing ? later.at(name) : states.at(name)) << name;
    EXPECT_NE(later.at(name), name == missing ? "" : states.at(name)) << name;
  }
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
