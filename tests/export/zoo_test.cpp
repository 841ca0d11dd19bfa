// SPDX-License-Identifier: Apache-2.0
// Every model of the zoo leaves the house: exported here, run by programs that know no model.
#include "tests/support/zoo.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/cuda.h>

#include <algorithm>

#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/export/export_model.h"
#include "tensorpack/export/exported_model.h"
#include "tensorpack/export/onnx.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/utils/fs.h"
#include "tests/export/onnx_runtime.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

constexpr int64_t kBatches[] = {1, 7, 64};

// Biases, scales and statistics as after some training: at first they do nothing.
class Trained final : public SessionInit {
 public:
  void init(Graph& graph) override {
    const at::Generator generator = at::detail::createCPUGenerator(7);
    at::NoGradGuard no_grad;
    for (Variable& variable : graph.variables().all()) {
      if (variable.tensor.dim() != 1) continue;
      variable.tensor.add_(at::rand(variable.tensor.sizes(), generator), 0.3);
    }
  }
};

PredictConfig predict_config(const ZooModel& model) {
  return {
      .inputs = model.inputs,
      .tower_func = [&model](const std::vector<at::Tensor>& inputs) { model.build(inputs); },
      .session_init = Trained(),
      .output_names = {"prediction"},
      .graph = {.seed = 1},
  };
}

std::vector<at::Tensor> random_batch(const ZooModel& model, int64_t size) {
  const at::Generator generator = at::detail::createCPUGenerator(size);
  std::vector<at::Tensor> batch;
  for (const TensorSpec& spec : model.inputs) {
    Shape shape = spec.shape;
    std::replace(shape.begin(), shape.end(), int64_t{-1}, size);
    batch.push_back(spec.dtype == at::kLong
                        ? at::randint(0, 10, shape, generator, at::TensorOptions(at::kLong))
                        : at::rand(shape, generator));
  }
  return batch;
}

// Files of one model for every batch, and what it should say.
class Trial {
 public:
  explicit Trial(const ZooModel& model) : model_(model) {}

  const ZooModel& model() const { return model_; }
  std::string file() const { return dir_ / "model"; }
  /// Writes the batches, and adds what the program is to be called with.
  void prepare(std::vector<std::string>& command) const {
    for (int64_t size : kBatches) {
      const std::vector<at::Tensor> batch = random_batch(model_, size);
      NamedTensors inputs;
      for (size_t i = 0; i < batch.size(); ++i) inputs[model_.inputs[i].name] = batch[i];
      write_safetensors(dir_ / input(size), inputs);
      command.insert(command.end(), {file(), dir_ / input(size), dir_ / output(size)});
    }
  }
  template <typename Compare>
  void compare(const Compare& is_same) const {
    const OfflinePredictor predict(predict_config(model_));
    for (int64_t size : kBatches) {
      const at::Tensor found = read_safetensors(dir_ / output(size)).tensors.at("prediction");
      EXPECT_TRUE(is_same(predict(random_batch(model_, size))[0], found))
          << model_.name << ", batch of " << size;
    }
  }

 private:
  static std::string input(int64_t size) { return "in" + std::to_string(size); }
  static std::string output(int64_t size) { return "out" + std::to_string(size); }

  const ZooModel& model_;
  TempDir dir_;
};

std::vector<std::unique_ptr<Trial>> all_trials() {
  std::vector<std::unique_ptr<Trial>> trials;
  for (const ZooModel& model : zoo()) trials.push_back(std::make_unique<Trial>(model));
  return trials;
}

bool is_close(const at::Tensor& expected, const at::Tensor& found) {
  return expected.sizes() == found.sizes() && at::allclose(found, expected, 1e-4, 1e-5);
}

TEST(ZooExportTest, AnotherProgramPredictsTheSameBits) {
  const auto trials = all_trials();
  std::vector<std::string> command = {TENSORPACK_RUN_EXPORTED};
  for (const auto& trial : trials) {
    export_model(predict_config(trial->model()), trial->file());
    trial->prepare(command);
  }
  ChildProcess child(command);
  ASSERT_EQ(child.wait(), 0) << child.output();
  for (const auto& trial : trials) {
    // Predicted by oneDNN where libtorch has an LSTM of it, which the file has not.
    const bool is_exact = trial->model().name != "Lstm";
    trial->compare([is_exact](const at::Tensor& a, const at::Tensor& b) {
      return is_exact ? at::equal(a, b) : is_close(a, b);
    });
  }
}

TEST(ZooExportTest, AGpuPredictsTheSameNumbers) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  for (const auto& trial : all_trials()) {
    export_model(predict_config(trial->model()), trial->file());
    const ExportedModel model = load_exported_model(trial->file(), {.device = at::kCUDA});
    const ExportedModel on_host = load_exported_model(trial->file());
    for (int64_t size : kBatches) {
      std::vector<at::Tensor> inputs;
      const std::vector<at::Tensor> batch = random_batch(trial->model(), size);
      for (const TensorSpec& spec : model.inputs()) {
        for (size_t i = 0; i < batch.size(); ++i) {
          if (trial->model().inputs[i].name == spec.name) inputs.push_back(batch[i]);
        }
      }
      EXPECT_TRUE(at::allclose(model(inputs)[0].cpu(), on_host(inputs)[0], 1e-3, 1e-4))
          << trial->model().name << ", batch of " << size;
    }
  }
}

TEST(ZooExportTest, OnnxRuntimePredictsTheSameNumbers) {
  TP_SKIP_WITHOUT_ONNX_RUNTIME();
  const auto trials = all_trials();
  std::vector<std::string> files;
  for (const auto& trial : trials) {
    export_onnx(predict_config(trial->model()), trial->file());
    trial->prepare(files);
  }
  run_onnx(files);
  for (const auto& trial : trials) trial->compare(is_close);
}

TEST(ZooExportTest, FoldedBatchNormPredictsTheSameNumbers) {
  TP_SKIP_WITHOUT_ONNX_RUNTIME();
  std::vector<std::unique_ptr<Trial>> trials;
  std::vector<std::string> files;
  for (auto& trial : all_trials()) {
    const std::string& name = trial->model().name;
    if (name != "ResNet18" && name != "DenseNet" && name != "Dcgan") continue;
    export_onnx(predict_config(trial->model()), trial->file(), {.fold_batch_norm = true});
    trial->prepare(files);
    trials.push_back(std::move(trial));
  }
  ASSERT_EQ(trials.size(), 3U);
  run_onnx(files);
  for (const auto& trial : trials) trial->compare(is_close);
}

}  // namespace
}  // namespace tensorpack
