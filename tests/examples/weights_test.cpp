// SPDX-License-Identifier: Apache-2.0
// Weights of other libraries: what their models compute from a file, ours compute from it, too. The
// large models here are written from torchvision's and Hugging Face's names in plain libtorch, and
// share nothing with ours; small ones were written by the libraries themselves.
#include <gmock/gmock.h>

#include <cmath>

#include "examples/models/resnet.h"
#include "examples/models/transformer.h"
#include "tensorpack/tensorpack.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::Not;

class StateDict {
 public:
  const Tensor& operator[](const std::string& name) const { return tensors_.at(name); }
  const NamedTensors& tensors() const { return tensors_; }
  NamedTensors& tensors() { return tensors_; }

 protected:
  void add(const std::string& name, Tensor tensor) { tensors_[name] = std::move(tensor); }

 private:
  NamedTensors tensors_;
};

// torchvision.models.resnet50().state_dict(), with random values.
class TorchvisionResNet50 : public StateDict {
 public:
  TorchvisionResNet50() {
    torch::manual_seed(1);
    conv_bn("conv1", "bn1", 3, 64, 7);
    int64_t inputs = 64;
    for (int stage = 0; stage < 4; ++stage) {
      const int64_t width = int64_t{64} << stage;
      for (int k = 0; k < kBlocks[stage]; ++k) {
        const std::string block = name_of(stage, k);
        conv_bn(block + "conv1", block + "bn1", inputs, width, 1);
        conv_bn(block + "conv2", block + "bn2", width, width, 3);
        conv_bn(block + "conv3", block + "bn3", width, 4 * width, 1);
        if (k == 0) {
          conv_bn(block + "downsample.0", block + "downsample.1", inputs, 4 * width, 1);
        }
        inputs = 4 * width;
      }
    }
    add("fc.weight", torch::randn({1000, 2048}) / std::sqrt(2048.0));
    add("fc.bias", torch::randn({1000}));
  }

  Tensor forward(const Tensor& image) const {
    const StateDict& w = *this;
    Tensor x = torch::relu(apply("conv1", "bn1", image, 2, 3));
    x = torch::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
    for (int stage = 0; stage < 4; ++stage) {
      for (int k = 0; k < kBlocks[stage]; ++k) {
        const std::string block = name_of(stage, k);
        const int64_t stride = stage > 0 && k == 0 ? 2 : 1;
        Tensor y = torch::relu(apply(block + "conv1", block + "bn1", x, 1, 0));
        y = torch::relu(apply(block + "conv2", block + "bn2", y, stride, 1));
        y = apply(block + "conv3", block + "bn3", y, 1, 0);
        if (k == 0) x = apply(block + "downsample.0", block + "downsample.1", x, stride, 0);
        x = torch::relu(x + y);
      }
    }
    return torch::addmm(w["fc.bias"], x.mean({2, 3}), w["fc.weight"].t());
  }

 private:
  static constexpr std::array<int, 4> kBlocks = {3, 4, 6, 3};

  static std::string name_of(int stage, int block) {
    return fmt::format("layer{}.{}.", stage + 1, block);
  }
  void conv_bn(const std::string& conv, const std::string& bn, int64_t in, int64_t out,
               int64_t kernel) {
    const double fan = std::sqrt(static_cast<double>(in * kernel * kernel));
    add(conv + ".weight", torch::randn({out, in, kernel, kernel}) / fan);
    add(bn + ".weight", torch::rand({out}) + 0.5);
    add(bn + ".bias", torch::randn({out}) / 10);
    add(bn + ".running_mean", torch::randn({out}) / 10);
    add(bn + ".running_var", torch::rand({out}) + 0.5);
    add(bn + ".num_batches_tracked", torch::tensor(int64_t{7}));
  }
  Tensor apply(const std::string& conv, const std::string& bn, const Tensor& x, int64_t stride,
               int64_t padding) const {
    const StateDict& w = *this;
    const auto column = [&](const char* name) { return w[bn + name].view({1, -1, 1, 1}); };
    const Tensor y = torch::conv2d(x, w[conv + ".weight"], {}, stride, padding);
    const Tensor normal = (y - column(".running_mean")) / (column(".running_var") + 1e-5).sqrt();
    return normal * column(".weight") + column(".bias");
  }
};

// transformers.GPT2Model("gpt2").state_dict() in small, with random values.
class HuggingFaceGPT2 : public StateDict {
 public:
  static constexpr int64_t kWidth = 32;
  static constexpr int64_t kHeads = 4;
  static constexpr int64_t kLayers = 2;

  HuggingFaceGPT2() {
    torch::manual_seed(2);
    add("wte.weight", torch::randn({50, kWidth}));
    add("wpe.weight", torch::randn({16, kWidth}));
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string h = fmt::format("h.{}.", i);
      norm(h + "ln_1");
      add(h + "attn.bias", torch::ones({1, 1, 16, 16}).tril());
      conv1d(h + "attn.c_attn", kWidth, 3 * kWidth);
      conv1d(h + "attn.c_proj", kWidth, kWidth);
      norm(h + "ln_2");
      conv1d(h + "mlp.c_fc", kWidth, 4 * kWidth);
      conv1d(h + "mlp.c_proj", 4 * kWidth, kWidth);
    }
    norm("ln_f");
  }

  Tensor forward(const Tensor& words) const {
    const StateDict& w = *this;
    Tensor x =
        torch::embedding(w["wte.weight"], words) + w["wpe.weight"].slice(0, 0, words.size(1));
    for (int64_t i = 0; i < kLayers; ++i) {
      const std::string h = fmt::format("h.{}.", i);
      x = x + attend(h + "attn.", normalize(h + "ln_1", x));
      const Tensor y = apply(h + "mlp.c_fc", normalize(h + "ln_2", x));
      const Tensor gelu =
          0.5 * y * (1 + torch::tanh(std::sqrt(2 / M_PI) * (y + 0.044715 * y.pow(3))));
      x = x + apply(h + "mlp.c_proj", gelu);
    }
    return torch::matmul(normalize("ln_f", x), w["wte.weight"].t());
  }

 private:
  void norm(const std::string& name) {
    add(name + ".weight", torch::rand({kWidth}) + 0.5);
    add(name + ".bias", torch::randn({kWidth}) / 10);
  }
  // [inputs, outputs]: the other way round than a linear layer of torch.
  void conv1d(const std::string& name, int64_t in, int64_t out) {
    add(name + ".weight", torch::randn({in, out}) / std::sqrt(static_cast<double>(in)));
    add(name + ".bias", torch::randn({out}) / 10);
  }
  Tensor apply(const std::string& name, const Tensor& x) const {
    const StateDict& w = *this;
    return torch::matmul(x, w[name + ".weight"]) + w[name + ".bias"];
  }
  Tensor normalize(const std::string& name, const Tensor& x) const {
    const StateDict& w = *this;
    const Tensor centered = x - x.mean(-1, true);
    const Tensor variance = centered.pow(2).mean(-1, true);
    return centered / (variance + 1e-5).sqrt() * w[name + ".weight"] + w[name + ".bias"];
  }
  Tensor attend(const std::string& name, const Tensor& x) const {
    const std::vector<Tensor> qkv = apply(name + "c_attn", x).split(kWidth, 2);
    const auto heads = [&](const Tensor& t) {
      return t.view({t.size(0), t.size(1), kHeads, -1}).permute({0, 2, 1, 3});
    };
    const Tensor scores = torch::matmul(heads(qkv[0]), heads(qkv[1]).transpose(2, 3)) /
                          std::sqrt(static_cast<double>(kWidth / kHeads));
    const Tensor past = torch::ones({x.size(1), x.size(1)}, torch::kBool).tril();
    const Tensor mixed = torch::matmul(
        torch::softmax(scores.masked_fill(past.logical_not(), -1e9), -1), heads(qkv[2]));
    return apply(name + "c_proj", mixed.permute({0, 2, 1, 3}).reshape(x.sizes()));
  }
};

struct Loaded {
  OfflinePredictor predict;
  std::string log = {};
};

// A predictor of ours with the weights in their file.
Loaded load(std::vector<TensorSpec> inputs, TowerFunc tower, const std::filesystem::path& path,
            const NameMap& names) {
  std::optional<OfflinePredictor> predict;
  const std::string log = stdout_of([&] {
    predict.emplace(PredictConfig{.inputs = std::move(inputs),
                                  .tower_func = std::move(tower),
                                  .session_init = SaverRestore(path, {.names = names}),
                                  .output_names = {"logits"}});
  });
  return {*predict, log};
}

// What the graph holds, written under their names, is their file again.
void expect_saved_back(Graph& graph, const StateDict& theirs, const std::filesystem::path& path,
                       const NameMap& names) {
  save_weights(graph, path, names);
  const NamedTensors saved = read_weights(path);
  for (const auto& [name, tensor] : saved) {
    EXPECT_TRUE(theirs.tensors().contains(name)) << name;
    EXPECT_TRUE(torch::equal(tensor, theirs[name])) << name;
  }
  for (const auto& [name, tensor] : theirs.tensors()) {
    const bool is_no_weight = name.ends_with("tracked") || name.ends_with(".attn.bias");
    EXPECT_TRUE(is_no_weight || saved.contains(name)) << name;
  }
}

class WeightsTest : public testing::Test {
 protected:
  void SetUp() override { write_weights(resnet_path_, resnet_.tensors()); }

  TempDir dir_;
  TorchvisionResNet50 resnet_;
  std::filesystem::path resnet_path_ = dir_ / "resnet50.safetensors";
};

TEST_F(WeightsTest, AResNet50OfTorchvisionPredictsTheSame) {
  Loaded ours = load(
      {{"image", {-1, 3, 64, 64}}},
      [](const Tensor& image) { named("logits", examples::resnet50(image)); }, resnet_path_,
      examples::torchvision_names());
  EXPECT_THAT(ours.log, Not(HasSubstr("WRN")));
  const Tensor image = torch::randn({2, 3, 64, 64});
  EXPECT_TRUE(torch::allclose(ours.predict(image)[0], resnet_.forward(image), 1e-4, 1e-4));
  expect_saved_back(ours.predict.graph(), resnet_, dir_ / "back.safetensors",
                    examples::torchvision_names());
}

TEST_F(WeightsTest, WhatIsTooMuchInAFileIsToldAndWhatIsMissingIsAnError) {
  const auto load_resnet = [&](const NamedTensors& weights) {
    write_weights(resnet_path_, weights);
    return load(
        {{"image", {-1, 3, 64, 64}}},
        [](const Tensor& image) { named("logits", examples::resnet50(image)); }, resnet_path_,
        examples::torchvision_names());
  };
  NamedTensors weights = resnet_.tensors();
  weights["layer5.weight"] = torch::ones({1});
  EXPECT_THAT(load_resnet(weights).log, HasSubstr("left unused: layer5.weight."));
  weights.erase("layer4.2.bn3.running_var");
  EXPECT_ERROR(load_resnet(weights),
               "the outputs (logits) need: group3/block2/conv3_bn/variance/EMA.");
}

TEST_F(WeightsTest, AGPT2OfHuggingFacePredictsTheSame) {
  const HuggingFaceGPT2 gpt2;
  write_weights(dir_ / "gpt2.safetensors", gpt2.tensors());
  const auto tower = [](const Tensor& words) {
    named("logits", examples::transformer(words, {.vocabulary = 50,
                                                  .context = 16,
                                                  .features = HuggingFaceGPT2::kWidth,
                                                  .heads = HuggingFaceGPT2::kHeads,
                                                  .layers = HuggingFaceGPT2::kLayers,
                                                  .tanh_gelu = true}));
  };
  Loaded ours = load({{"words", {-1, 12}, torch::kLong}}, tower, dir_ / "gpt2.safetensors",
                     examples::gpt2_names());
  EXPECT_THAT(ours.log, Not(HasSubstr("WRN")));
  const Tensor words = torch::randint(50, {3, 12}, torch::kLong);
  EXPECT_TRUE(torch::allclose(ours.predict(words)[0], gpt2.forward(words), 1e-4, 1e-4));
  expect_saved_back(ours.predict.graph(), gpt2, dir_ / "back.safetensors", examples::gpt2_names());
}

// Files and numbers that the libraries themselves wrote, see data/write_reference.py.
class ReferenceTest : public testing::Test {
 protected:
  static std::filesystem::path file(const std::string& name) {
    return std::filesystem::path(TENSORPACK_SOURCE_DIR "/tests/examples/data") /
           (name + ".safetensors");
  }
  // To rounding, which goes by the largest of the numbers that are added up.
  static void expect_same(const Tensor& ours, const Tensor& theirs) {
    ASSERT_EQ(ours.sizes(), theirs.sizes());
    EXPECT_LT((ours - theirs).abs().max().item<double>(), 1e-5 * theirs.abs().max().item<double>());
  }
};

TEST_F(ReferenceTest, AFileOfTorchvisionPredictsWhatItsModelDid) {
  Loaded ours = load(
      {{"image", {-1, 3, 32, 32}}},
      [](const Tensor& image) {
        named("logits", examples::resnet::imagenet(image, examples::resnet::bottleneck,
                                                   {1, 1, 1, 1}, /*classes=*/10, /*width=*/4));
      },
      file("torchvision_resnet"), examples::torchvision_names());
  EXPECT_THAT(ours.log, Not(HasSubstr("WRN")));
  const NamedTensors theirs = read_weights(file("torchvision_resnet_io"));
  expect_same(ours.predict(theirs.at("image"))[0], theirs.at("logits"));
}

TEST_F(ReferenceTest, AFileOfTransformersPredictsWhatItsModelDid) {
  Loaded ours = load(
      {{"words", {-1, 12}, torch::kLong}},
      [](const Tensor& words) {
        named("logits", examples::transformer(words, {.vocabulary = 50,
                                                      .context = 16,
                                                      .features = 24,
                                                      .heads = 4,
                                                      .layers = 2,
                                                      .tanh_gelu = true}));
      },
      file("transformers_gpt2"), examples::gpt2_names());
  EXPECT_THAT(ours.log, Not(HasSubstr("WRN")));
  const NamedTensors theirs = read_weights(file("transformers_gpt2_io"));
  expect_same(ours.predict(theirs.at("words"))[0], theirs.at("logits"));
}

}  // namespace
}  // namespace tensorpack
