// SPDX-License-Identifier: Apache-2.0
// One task, fitting y = 2 x + 1, at every level of the library: from a config that needs no loop to
// a loop that needs no trainer. docs/tutorial/training-interface.md explains them.
#include <fmt/format.h>

#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

std::vector<TensorSpec> inputs() { return {{"x", {-1}}, {"y", {-1}}}; }

Tensor cost(const Tensor& x, const Tensor& y) {
  const Tensor prediction = get_variable("w", {}) * x + get_variable("b", {});
  const Tensor cost = named("cost", (prediction - y).square().mean());
  add_moving_summary(cost);
  return cost;
}

DataPoint with_label(const DataPoint& p) { return {p[0], 2 * p[0] + 1}; }

DataFlowPtr data() { return FakeData({{.low = -1}}, {.size = 512}) | map(with_label) | batch(32); }

// A model and a config.
void high() {
  launch_train_with_config(
      {
          .model = Model{.inputs = inputs(), .build_graph = cost, .optimizer = SGD({.lr = 0.1})},
          .dataflow = data(),
          .max_epoch = 10,
      },
      SimpleTrainer());
}

// The same model as a class.
class LineModel : public ModelDesc {
  std::vector<TensorSpec> inputs() override { return {{"x", {-1}}, {"y", {-1}}}; }

  void build_graph(const std::vector<Tensor>& inputs) override {
    const Tensor prediction = get_variable("w", {}) * inputs[0] + get_variable("b", {});
    cost = named("cost", (prediction - inputs[1]).square().mean());
    add_moving_summary(cost);
  }

  Owned<Optimizer> optimizer() override { return SGD({.lr = 0.1}); }
};

void as_a_class() {
  TrainConfig config{.model = LineModel(), .dataflow = data(), .max_epoch = 10};
  SimpleTrainer trainer;
  launch_train_with_config(config, trainer);
}

// The trainer builds the graph; you run it.
void middle() {
  SimpleTrainer trainer;
  trainer.setup_graph(inputs(), QueueInput(data()), cost, SGD({.lr = 0.1}));
  trainer.train_with_defaults({.steps_per_epoch = 16, .max_epoch = 10});
}

// You build the graph, before the trainer exists; the trainer only runs it.
void low() {
  auto graph = std::make_shared<Graph>();
  SGD optimizer({.lr = 0.1});
  const DataFlowPtr flow = data() | repeat();
  const Op step = graph->define({
      .name = "step",
      .inputs = inputs(),
      .body =
          [&](const std::vector<Tensor>& batch) {
            TowerContext tower(*graph);
            minimize(optimizer, cost(batch[0], batch[1]));
            return tower.call().named_tensors();
          },
      .feeder = [&] { return flow->next()->components(); },
  });
  Trainer trainer(graph);
  trainer.set_train_op(step);
  trainer.train_with_defaults({.steps_per_epoch = 16, .max_epoch = 10});
}

// No graph and no trainer: the tower function is a function.
void none() {
  Graph graph;
  SGD optimizer({.lr = 0.1});
  const DataFlowPtr flow = data() | repeat(10);
  Tensor last;
  for (const DataPoint& batch : datapoints(*flow)) {
    TowerContext tower(graph);
    last = cost(batch[0], batch[1]);
    minimize(optimizer, last);
  }
  fmt::print("cost: {:.5g}\n", last.item<double>());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string level = argc == 2 ? argv[1] : "";
  const std::map<std::string, void (*)()> levels = {
      {"high", high}, {"class", as_a_class}, {"middle", middle}, {"low", low}, {"none", none}};
  if (!levels.contains(level)) {
    fmt::print(stderr, "usage: three_levels high|class|middle|low|none\n");
    return 2;
  }
  return run_main(levels.at(level));
}
