// SPDX-License-Identifier: Apache-2.0
// Several towers and several processes that share a GPU.
#include "tests/parallel/towers.h"

#include <gmock/gmock.h>

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

Values train_on_gpu(SingleCostTrainer&& trainer, DataFlowPtr data,
                    const std::function<at::Tensor(const at::Tensor&)>& logits = mlp) {
  launch_train_with_config({.model = {.inputs = image_inputs(),
                                      .build_graph = cost_of(logits),
                                      .optimizer = Adam({.lr = 1e-3, .epsilon = 1e-3})},
                            .dataflow = std::move(data),
                            .extra_callbacks = OwnedList<Callback>(),
                            .monitors = OwnedList<MonitorBase>(),
                            .session = kExact,
                            .steps_per_epoch = 30,
                            .max_epoch = 1},
                           trainer);
  Values values = values_of(trainer.graph());
  for (auto& [name, value] : values) value = value.cpu();
  return values;
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
  SimpleTrainer trainer(spread, on_gpu());
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
    Values values = values_of(graph);
    for (auto& [name, value] : values) value = value.cpu();
    return values;
  };
  const Values with = train(true);
  const Values without = train(false);
  for (const auto& [name, value] : with) {
    EXPECT_TRUE(at::allclose(value, without.at(name), 1e-5, 1e-6)) << name;
  }
}

}  // namespace
}  // namespace tensorpack::test
