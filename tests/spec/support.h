// SPDX-License-Identifier: Apache-2.0
// What the tests of several documents have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/tensorpack.h"
#include "tests/train/linear_model.h"

namespace tensorpack {

/// The values of the model of linear_model.h, in which y = 2 x + 1 was to be learned.
struct Line {
  double w = 0;
  double b = 0;
  bool operator==(const Line&) const = default;
};

inline Line line_of(Trainer& trainer, const std::string& scope = "") {
  return {trainer.variables().at(scope + "w").tensor.item<double>(),
          trainer.variables().at(scope + "b").tensor.item<double>()};
}

inline void expect_learned(Trainer& trainer) {
  const Line line = line_of(trainer);
  EXPECT_NEAR(line.w, 2, 1e-2);
  EXPECT_NEAR(line.b, 1, 1e-2);
}

/// A number of the host that a tower function counts its calls with: not in the recorded program.
using Count = std::shared_ptr<int>;
inline Count make_count() { return std::make_shared<int>(0); }

/// A variable of the graph that an op adds 1 to.
inline Op count_runs(Graph& graph) {
  return graph.define({.name = "count_runs", .body = [&graph](const auto&) {
                         TowerContext tower(graph);
                         torch::NoGradGuard no_grad;
                         get_variable("runs", {}, {.role = VariableRole::kModel}).add_(1);
                         return NamedTensors();
                       }});
}

inline double runs_of(Trainer& trainer) {
  return trainer.variables().at("runs").tensor.item<double>();
}

/// Batch number n is {n}, n = 0, 1, 2 ...
inline TensorInput numbers() {
  return TensorInput(
      [](int64_t number) { return DataPoint{torch::full({1}, number, torch::kFloat)}; });
}

/// The class of the documents, in the names of today.
class LineModel : public ModelDesc {
 public:
  std::vector<InputDesc> inputs() override { return {{"x", {-1}}, {"y", {-1}}}; }

  void build_graph(const std::vector<Tensor>& inputs) override {
    const Tensor& x = inputs[0];
    const Tensor& y = inputs[1];
    const Tensor prediction =
        named("prediction", get_variable("w", {}) * x + get_variable("b", {}));
    cost = named("cost", (prediction - y).square().mean());
  }

  Owned<Optimizer> optimizer() override { return SGD({.lr = 0.1}); }
};

}  // namespace tensorpack
