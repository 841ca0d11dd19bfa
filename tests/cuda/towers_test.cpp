// SPDX-License-Identifier: Apache-2.0
// Several towers and several processes that share a GPU.
#include "tests/parallel/towers.h"

#include <gmock/gmock.h>

#include <map>
#include <optional>
#include <set>

#include "tests/cuda/device.h"
#include "tests/distributed/ranks.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

using namespace std::chrono_literals;  // NOLINT
using testing::Each;
using testing::IsEmpty;

const SessionOptions kExact{.deterministic = true};

GraphOptions on_gpu() { return {.device = c10::Device(c10::kCUDA, 0), .seed = 7}; }

Devices two_towers() { return {0, 0}; }

Values on_host(Values values) {
  for (auto& [name, value] : values) value = value.cpu();
  return values;
}

Owned<Optimizer> adam() { return Adam({.lr = 1e-3, .epsilon = 1e-3}); }

Values train_on_gpu(SingleCostTrainer&& trainer, DataFlowPtr data,
                    const std::function<at::Tensor(const at::Tensor&)>& logits = mlp,
                    Owned<Optimizer> optimizer = adam(), int64_t steps = 30) {
  launch_train_with_config({.model = tensorpack::Model{.inputs = image_inputs(),
                                                       .build_graph = cost_of(logits),
                                                       .optimizer = std::move(optimizer)},
                            .dataflow = std::move(data),
                            .extra_callbacks = OwnedList<Callback>(),
                            .monitors = OwnedList<MonitorBase>(),
                            .session = kExact,
                            .steps_per_epoch = steps,
                            .max_epoch = 1},
                           trainer);
  return on_host(values_of(trainer.graph()));
}

// Sums of a GPU are in another order.
void expect_nearly(const Values& a, const Values& b) { expect_close(a, b, 1e-3); }

class GpuTowersTest : public CudaTest {};

TEST_F(GpuTowersTest, TwoTowersOnOneGpuEqualOneWithTheWholeBatch) {
  for (const auto& logits : {mlp, lenet_with_batch_norm}) {
    const Values one = train_on_gpu(SimpleTrainer(on_gpu()), images(8), logits);
    expect_nearly(one,
                  train_on_gpu(SyncMultiGPUTrainerReplicated(two_towers(), {.graph = on_gpu()}),
                               images(4), logits));
    expect_nearly(
        one, train_on_gpu(SyncMultiGPUTrainerParameterServer(two_towers(), {.graph = on_gpu()}),
                          images(4), logits));
  }
}

TEST_F(GpuTowersTest, TheSameRunTwiceGivesTheSameBits) {
  const auto run = [] {
    return train_on_gpu(SyncMultiGPUTrainerReplicated(two_towers(), {.graph = on_gpu()}),
                        images(4));
  };
  expect_equal(run(), run());
}

TEST_F(GpuTowersTest, AStepThatExchangesThroughTheHostIsCapturedInPieces) {
  const std::string log = stdout_of([] {
    train_on_gpu(SyncMultiGPUTrainerReplicated(two_towers(), {.graph = on_gpu()}), images(4));
  });
  EXPECT_THAT(log, testing::Not(testing::HasSubstr("cannot be captured")));
}

TEST_F(GpuTowersTest, VariablesMayBeKeptOnTheCpu) {
  expect_nearly(train_on_gpu(SimpleTrainer(on_gpu()), images(8)),
                train_on_gpu(SyncMultiGPUTrainer(two_towers(), on_gpu()), images(4)));
}

TEST_F(GpuTowersTest, VariablesMayBeSpreadOverDevices) {
  const c10::Device gpu(c10::kCUDA, 0);
  const DataParallel spread{.devices = two_towers(),
                            .mode = ParallelMode::kParameterServer,
                            .variable_devices = {c10::kCPU, gpu}};
  SingleCostTrainer trainer(spread, on_gpu());
  expect_nearly(train_on_gpu(SimpleTrainer(on_gpu()), images(8)),
                train_on_gpu(std::move(trainer), images(4)));
  std::set<c10::DeviceType> types;
  for (const Variable& variable : trainer.graph().variables().all()) {
    if (variable.name != "global_step") types.insert(variable.tensor.device().type());
  }
  EXPECT_EQ(types.size(), 2U);
}

TEST_F(GpuTowersTest, TwoProcessesOnOneGpuExchangeThroughTheHost) {
  const Values one = train_on_gpu(SimpleTrainer(on_gpu()), images(8));
  std::vector<Values> values(2);
  const auto errors = run_ranks(2, 60s, [&](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<DataPoint> points;
    const DataFlowPtr all = images(4);
    for (int i = 0; auto point = all->next(); ++i) {
      if (i % 2 == group->rank()) points.push_back(*point);
    }
    values[static_cast<size_t>(group->rank())] =
        train_on_gpu(DistributedTrainer({.devices = {0}, .processes = group, .graph = on_gpu()}),
                     std::make_unique<FromList>(std::move(points)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  expect_nearly(values[0], one);
  expect_equal(values[0], values[1]);
}

TEST_F(GpuTowersTest, AnExchangeOverNcclIsCapturedWithTheStep) {
  const std::shared_ptr<ProcessGroup> nccl =
      ProcessGroup::create({.environment = place_of(0, 1, free_port()),
                            .device = c10::Device(c10::kCUDA, 0),
                            .backend = CollectiveBackend::kNccl});
  ASSERT_TRUE(nccl->is_capturable());
  const auto train = [&](bool exchanges) {
    Graph graph(on_gpu());
    const auto sgd = std::make_shared<SGD>(SGDOptions{.lr = 0.05});
    const Op tower =
        define_tower(graph, {.exchanges = exchanges, .bucket_bytes = 1000},
                     {.op_name = "tower",
                      .inputs = image_inputs(),
                      .function = cost_of(lenet_with_batch_norm),
                      .body = [sgd](TowerContext& t) { minimize(*sgd, t.outputs()[0]); }})
            .op();
    const Op op = Op::parallel("step", {tower}, make_process_exchange({.processes = nccl}));
    Session session(graph, kExact);
    const std::string log = stdout_of([&] {
      const DataFlowPtr data = images(8);
      for (int i = 0; i < 8; ++i) {
        const DataPoint batch = *data->next();
        session.run(op, {"cost"}, {{"image", batch[0]}, {"label", batch[1]}});
      }
    });
    EXPECT_THAT(log, testing::Not(testing::HasSubstr("cannot be captured")));
    return on_host(values_of(graph));
  };
  const Values with = train(true);
  const Values without = train(false);
  for (const auto& [name, value] : with) {
    EXPECT_TRUE(at::allclose(value, without.at(name), 1e-5, 1e-6)) << name;
  }
}

// ---- accumulated gradients

constexpr int kNiter = 3;

Owned<Optimizer> accumulating() { return AccumGradOptimizer(adam(), kNiter, {.average = true}); }

void expect_same_weights(const Values& a, const Values& b) {
  for (const char* name : {"fc0/W", "fc0/b", "fc1/W", "fc1/b"}) {
    EXPECT_TRUE(at::allclose(a.at(name), b.at(name), 1e-3, 1e-4)) << name;
  }
}

// Counts on the device, where what was captured counts each time it is launched, and on the host.
class Counting final : public Exchange {
 public:
  explicit Counting(bool is_capturable) : is_capturable_(is_capturable) {}

  std::vector<at::Tensor> begin(int64_t key, at::TensorList tensors) override {
    ++begun_;
    begun_on_device_.add_(1);
    std::vector<at::Tensor>& averages = averages_[key];
    for (size_t i = averages.size(); i < tensors.size(); ++i) {
      averages.push_back(at::empty_like(tensors[i]));
    }
    for (size_t i = 0; i < tensors.size(); ++i) averages[i].copy_(tensors[i]);
    return averages;
  }
  void end(int64_t, at::TensorList) override {}
  bool is_capturable() const override { return is_capturable_; }

  int64_t exchanges() const { return begun_on_device_.item<int64_t>(); }
  int64_t calls() const { return begun_; }

 private:
  bool is_capturable_;
  int64_t begun_ = 0;
  at::Tensor begun_on_device_ = at::zeros({}, at::TensorOptions(at::kLong).device(at::kCUDA));
  std::map<int64_t, std::vector<at::Tensor>> averages_;
};

class CountingGroup final : public ExchangeGroup {
 public:
  explicit CountingGroup(bool is_capturable) : exchange(is_capturable) {}
  Exchange& member(size_t) override { return exchange; }
  void abort(size_t) override {}

  Counting exchange;
};

// One tower that accumulates, and exchanges with nobody.
struct AccumulatingTower {
  explicit AccumulatingTower(std::shared_ptr<ExchangeGroup> group) {
    const std::shared_ptr<Optimizer> optimizer = accumulating().share();
    const Op tower =
        define_tower(
            graph, {.exchanges = group != nullptr, .bucket_bytes = 1},
            {.op_name = "tower",
             .inputs = image_inputs(),
             .function = cost_of(mlp),
             .body = [optimizer](TowerContext& t) { minimize(*optimizer, t.outputs()[0]); }})
            .op();
    op = group ? Op::parallel("step", {tower}, std::move(group)) : tower;
    session.emplace(graph, kExact);
  }

  // Steps first to last - 1, and what is in the log.
  std::string run(int first, int last) {
    return stdout_of([&] {
      const DataFlowPtr data = images(4);
      for (int i = 0; i < last; ++i) {
        const DataPoint batch = *data->next();
        if (i < first) continue;
        session->run(op, {"cost"}, {{"image", batch[0]}, {"label", batch[1]}});
      }
    });
  }

  Graph graph{on_gpu()};
  Op op;
  std::optional<Session> session;
};

constexpr int kBuckets = 4;

class GpuAccumulationTest : public CudaTest, public testing::WithParamInterface<bool> {};

TEST_P(GpuAccumulationTest, CapturedStepsExchangeOnceInSoMany) {
  const auto group = std::make_shared<CountingGroup>(GetParam());
  AccumulatingTower tower(group);
  AccumulatingTower alone(nullptr);
  EXPECT_THAT(tower.run(0, 14), testing::Not(testing::HasSubstr("cannot be captured")));
  EXPECT_THAT(alone.run(0, 14), testing::Not(testing::HasSubstr("cannot be captured")));
  EXPECT_EQ(group->exchange.exchanges(), 14 / kNiter * kBuckets);
  EXPECT_TRUE(tower.graph.variables().at("AccumGrad/step").tensor.is_cpu());
  // Warmed up, captured, and never called again; or called in every run.
  EXPECT_EQ(group->exchange.calls(), (GetParam() ? 2 : 14 / kNiter) * kBuckets);
  expect_nearly(on_host(values_of(tower.graph)), on_host(values_of(alone.graph)));
}

TEST_P(GpuAccumulationTest, GoesOnInTheMiddleOfAnAccumulation) {
  AccumulatingTower whole(std::make_shared<CountingGroup>(GetParam()));
  whole.run(0, 14);
  const auto group = std::make_shared<CountingGroup>(GetParam());
  AccumulatingTower resumed(group);
  resumed.run(0, 10);
  const int64_t before = group->exchange.exchanges();
  AccumulatingTower first(std::make_shared<CountingGroup>(GetParam()));
  first.run(0, 5);
  for (const Variable& variable : first.graph.variables().all()) {
    resumed.graph.variables().at(variable.name).assign(variable.tensor);
  }
  resumed.run(5, 14);
  EXPECT_EQ(group->exchange.exchanges() - before, 3 * kBuckets);
  expect_nearly(on_host(values_of(whole.graph)), on_host(values_of(resumed.graph)));
}

INSTANTIATE_TEST_SUITE_P(Exchanges, GpuAccumulationTest, testing::Bool(), [](const auto& info) {
  return info.param ? "CapturedWithTheStep" : "ThroughTheHost";
});

TEST_F(GpuTowersTest, AccumulatingTowersEqualOneWithTheWholeBatch) {
  expect_same_weights(train_on_gpu(SimpleTrainer(on_gpu()), images(24, 192), mlp, adam(), 10),
                      train_on_gpu(SyncMultiGPUTrainerReplicated(two_towers(), {.graph = on_gpu()}),
                                   images(4, 192), mlp, accumulating(), 30));
}

TEST_F(GpuTowersTest, AccumulatingProcessesEqualOneWithTheWholeBatch) {
  const Values one = train_on_gpu(SimpleTrainer(on_gpu()), images(24, 192), mlp, adam(), 10);
  std::vector<Values> values(2);
  const auto errors = run_ranks(2, 60s, [&](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<DataPoint> points;
    const DataFlowPtr all = images(4, 192);
    for (int i = 0; auto point = all->next(); ++i) {
      if (i % 2 == group->rank()) points.push_back(*point);
    }
    values[static_cast<size_t>(group->rank())] =
        train_on_gpu(DistributedTrainer({.devices = {0}, .processes = group, .graph = on_gpu()}),
                     std::make_unique<FromList>(std::move(points)), mlp, accumulating(), 30);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  expect_same_weights(values[0], one);
  expect_equal(values[0], values[1]);
}

TEST_F(GpuTowersTest, AccumulatingOverNcclIsCapturedWithTheStep) {
  const std::shared_ptr<ProcessGroup> nccl =
      ProcessGroup::create({.environment = place_of(0, 1, free_port()),
                            .device = c10::Device(c10::kCUDA, 0),
                            .backend = CollectiveBackend::kNccl});
  AccumulatingTower tower(make_process_exchange({.processes = nccl}));
  AccumulatingTower alone(nullptr);
  EXPECT_THAT(tower.run(0, 14), testing::Not(testing::HasSubstr("cannot be captured")));
  alone.run(0, 14);
  expect_nearly(on_host(values_of(tower.graph)), on_host(values_of(alone.graph)));
}

}  // namespace
}  // namespace tensorpack::test
