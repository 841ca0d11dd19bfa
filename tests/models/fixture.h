// SPDX-License-Identifier: Apache-2.0
// A graph with a tower, for tests that call layers one at a time.
#pragma once

#include <gmock/gmock.h>
#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/tower/tower_context.h"

namespace tensorpack::test {

class LayersTest : public testing::Test {
 protected:
  at::Tensor variable(const std::string& name) { return graph_.variables().at(name).tensor; }
  std::vector<int64_t> shape_of(const std::string& name) { return variable(name).sizes().vec(); }
  bool has_variable(const std::string& name) { return graph_.variables().find(name) != nullptr; }
  void train() {
    tower_.reset();
    tower_.emplace(graph_);
  }
  void predict() {
    tower_.reset();
    tower_.emplace(graph_, TowerOptions{.is_training = false, .shares_variables = true});
  }

  Graph graph_;
  std::optional<TowerContext> tower_;
};

}  // namespace tensorpack::test
