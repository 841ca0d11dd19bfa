// SPDX-License-Identifier: Apache-2.0
#include "tests/support/zoo.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <memory>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/tower/tower_context.h"

namespace tensorpack {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// ---- layers

Tensor dense(const std::string& name, const Tensor& x, int64_t units) {
  VariableScope scope(name);
  const Tensor w = get_variable("W", {units, x.size(-1)}, init::he_normal());
  return at::linear(x, w, get_variable("b", {units}));
}

Tensor conv(const std::string& name, const Tensor& x, int64_t filters, int64_t kernel = 3,
            int64_t stride = 1) {
  VariableScope scope(name);
  const Tensor w = get_variable("W", {filters, x.size(1), kernel, kernel}, init::he_normal());
  return at::conv2d(x, w, get_variable("b", {filters}), stride, kernel / 2);
}

Tensor deconv(const std::string& name, const Tensor& x, int64_t filters) {
  VariableScope scope(name);
  const Tensor w = get_variable("W", {x.size(1), filters, 4, 4}, init::normal(0.1));
  return at::conv_transpose2d(x, w, get_variable("b", {filters}), 2, 1);
}

Tensor batch_norm(const std::string& name, const Tensor& x) {
  VariableScope scope(name);
  const int64_t channels = x.size(1);
  const Tensor gamma = get_variable("gamma", {channels}, init::ones());
  const Tensor beta = get_variable("beta", {channels});
  const Tensor mean = get_variable("mean", {channels}, {.role = VariableRole::kModel});
  const Tensor variance =
      get_variable("variance", {channels}, {.init = init::ones(), .role = VariableRole::kModel});
  return at::batch_norm(x, gamma, beta, mean, variance, is_training(), 0.1, 1e-5, false);
}

Tensor layer_norm(const std::string& name, const Tensor& x) {
  VariableScope scope(name);
  const int64_t width = x.size(-1);
  return at::layer_norm(x, {width}, get_variable("gamma", {width}, init::ones()),
                        get_variable("beta", {width}));
}

Tensor embedding(const std::string& name, const Tensor& ids, int64_t rows, int64_t width) {
  VariableScope scope(name);
  return at::embedding(get_variable("W", {rows, width}, init::normal(0.1)), ids);
}

// ---- image models

Tensor mlp(Tensor x) {
  x = at::relu(dense("fc0", x, 64));
  x = at::relu(dense("fc1", x, 64));
  return dense("fc2", x, 10);
}

Tensor logistic_regression(Tensor x) { return dense("fc", x, 10); }

Tensor lenet(Tensor x) {
  x = at::max_pool2d(at::relu(conv("conv0", x, 6, 5)), 2);
  x = at::max_pool2d(at::relu(conv("conv1", x, 12, 5)), 2);
  return dense("fc1", at::relu(dense("fc0", x.flatten(1), 32)), 10);
}

Tensor lenet_with_norm_and_dropout(Tensor x) {
  x = at::max_pool2d(at::relu(batch_norm("bn0", conv("conv0", x, 6, 5))), 2);
  x = at::max_pool2d(at::relu(batch_norm("bn1", conv("conv1", x, 12, 5))), 2);
  x = at::dropout(at::relu(dense("fc0", x.flatten(1), 32)), 0.5, is_training());
  return dense("fc1", x, 10);
}

Tensor residual_block(const std::string& name, const Tensor& x, int64_t filters, int64_t stride) {
  VariableScope scope(name);
  Tensor y = at::relu(batch_norm("bn0", conv("conv0", x, filters, 3, stride)));
  y = batch_norm("bn1", conv("conv1", y, filters));
  const bool same = stride == 1 && x.size(1) == filters;
  return at::relu(y + (same ? x : batch_norm("bn2", conv("shortcut", x, filters, 1, stride))));
}

Tensor resnet18(Tensor x) {
  x = at::relu(batch_norm("bn0", conv("conv0", x, 4)));
  int64_t filters = 4;
  for (int stage = 0; stage < 4; ++stage, filters *= 2) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = "group" + std::to_string(stage) + "block" + std::to_string(block);
      x = residual_block(name, x, filters, stage > 0 && block == 0 ? 2 : 1);
    }
  }
  return dense("fc", at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), 10);
}

Tensor vgg(Tensor x) {
  for (int stage = 0; stage < 3; ++stage) {
    VariableScope scope("stage" + std::to_string(stage));
    x = at::relu(conv("conv0", x, 4 << stage));
    x = conv("conv1", x, 4 << stage).relu_();
    x = at::max_pool2d(x, 2);
  }
  x = at::dropout(at::relu(dense("fc0", x.flatten(1), 32)), 0.5, is_training());
  return dense("fc1", x, 10);
}

Tensor densenet(Tensor x) {
  x = conv("conv0", x, 6);
  for (int layer = 0; layer < 4; ++layer) {
    VariableScope scope("layer" + std::to_string(layer));
    x = at::cat({x, conv("conv", at::relu(batch_norm("bn", x)), 4)}, 1);
  }
  x = at::avg_pool2d(at::relu(conv("transition", x, 8, 1)), 2);
  return dense("fc", x.mean({2, 3}), 10);
}

Tensor unet(const Tensor& x) {
  const Tensor a = at::relu(batch_norm("bn0", conv("down0", x, 4)));
  const Tensor b = at::relu(conv("down1", at::max_pool2d(a, 2), 8));
  const Tensor c = at::relu(conv("bottom", at::max_pool2d(b, 2), 8));
  Tensor y =
      at::relu(conv("up1", at::cat({at::upsample_nearest2d(c, b.sizes().slice(2)), b}, 1), 8));
  y = at::relu(conv("up0", at::cat({deconv("deconv", y, 4), a}, 1), 4));
  return at::sigmoid(conv("out", y, x.size(1), 1));
}

Tensor autoencoder(const Tensor& x) {
  Tensor code = at::relu(conv("conv0", x, 4, 3, 2));
  code = at::tanh(conv("conv1", code, 2, 3, 2));
  return at::sigmoid(deconv("deconv1", at::relu(deconv("deconv0", code, 4)), x.size(1)));
}

Tensor generator(const Tensor& z) {
  VariableScope scope("gen");
  Tensor x = at::relu(batch_norm("bn0", dense("fc", z, 4 * 4 * 8).view({-1, 8, 4, 4})));
  x = at::relu(batch_norm("bn1", deconv("deconv0", x, 4)));
  return at::tanh(deconv("deconv1", x, 1));
}

Tensor discriminator(const Tensor& image) {
  VariableScope scope("discrim", Reuse::kAuto);
  Tensor x = at::leaky_relu(conv("conv0", image, 4, 3, 2), 0.2);
  x = at::leaky_relu(batch_norm("bn", conv("conv1", x, 8, 3, 2)), 0.2);
  return dense("fc", x.flatten(1), 1);
}

std::vector<ZooLoss> dcgan(const Tensors& in) {
  const Tensor fake = generator(in[1]);
  const Tensor real_score = discriminator(in[0]);
  const Tensor fake_score = named("prediction", discriminator(fake));
  const auto loss = [](const Tensor& score, double target) {
    return at::binary_cross_entropy_with_logits(score, at::full_like(score, target));
  };
  return {{loss(real_score, 1) + loss(fake_score, 0), "^discrim/"}, {loss(fake_score, 1), "^gen/"}};
}

// ---- sequence models

constexpr int64_t kWords = 30;
constexpr int64_t kHidden = 16;

std::vector<ZooLoss> next_word(const Tensor& states, const Tensor& words) {
  const Tensor logits =
      named("prediction", dense("out", states.narrow(0, 0, states.size(0) - 1), kWords));
  return {{at::cross_entropy_loss(logits.reshape({-1, kWords}),
                                  words.narrow(0, 1, words.size(0) - 1).reshape({-1}))}};
}

Tensors recurrent_weights(int64_t gates) {
  const auto shape = [](int64_t rows) { return init::uniform(-rows * 0.01, rows * 0.01); };
  return {get_variable("Wi", {gates * kHidden, kHidden}, shape(10)),
          get_variable("Wh", {gates * kHidden, kHidden}, shape(10)),
          get_variable("bi", {gates * kHidden}), get_variable("bh", {gates * kHidden})};
}

std::vector<ZooLoss> lstm(const Tensors& in) {
  const Tensor x = embedding("words", in[0], kWords, kHidden);
  const Tensor zeros = at::zeros({1, x.size(1), kHidden}, x.options());
  const auto out =
      at::lstm(x, {zeros, zeros}, recurrent_weights(4), true, 1, 0, is_training(), false, false);
  return next_word(std::get<0>(out), in[0]);
}

std::vector<ZooLoss> unrolled_lstm(const Tensors& in) {
  const Tensor x = embedding("words", in[0], kWords, kHidden);
  const Tensors w = recurrent_weights(4);
  Tensor h = at::zeros({x.size(1), kHidden}, x.options());
  Tensor c = at::zeros({x.size(1), kHidden}, x.options());
  Tensors states;
  for (int64_t t = 0; t < x.size(0); ++t) {
    const Tensors gates = (at::linear(x[t], w[0], w[2]) + at::linear(h, w[1], w[3])).chunk(4, 1);
    c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh();
    h = gates[3].sigmoid() * c.tanh();
    states.push_back(h);
  }
  return next_word(at::stack(states), in[0]);
}

std::vector<ZooLoss> gru(const Tensors& in) {
  const Tensor x = embedding("words", in[0], kWords, kHidden);
  const Tensor zeros = at::zeros({1, x.size(1), kHidden}, x.options());
  const auto out = at::gru(x, zeros, recurrent_weights(3), true, 1, 0, is_training(), false, false);
  return next_word(std::get<0>(out), in[0]);
}

std::vector<ZooLoss> unrolled_gru(const Tensors& in) {
  const Tensor x = embedding("words", in[0], kWords, kHidden);
  const Tensors w = recurrent_weights(3);
  Tensor h = at::zeros({x.size(1), kHidden}, x.options());
  Tensors states;
  for (int64_t t = 0; t < x.size(0); ++t) {
    const Tensors a = at::linear(x[t], w[0], w[2]).chunk(3, 1);
    const Tensors b = at::linear(h, w[1], w[3]).chunk(3, 1);
    const Tensor update = (a[1] + b[1]).sigmoid();
    const Tensor candidate = (a[2] + (a[0] + b[0]).sigmoid() * b[2]).tanh();
    h = candidate + update * (h - candidate);
    states.push_back(h);
  }
  return next_word(at::stack(states), in[0]);
}

Tensor attention(const Tensor& x) {  // [batch, time, width]
  constexpr int64_t kHeads = 2;
  const int64_t batch = x.size(0), time = x.size(1), width = x.size(2);
  const Tensor qkv = dense("qkv", x, 3 * width)
                         .view({batch, time, 3, kHeads, width / kHeads})
                         .permute({2, 0, 3, 1, 4});
  const Tensor mask = at::ones({time, time}, x.options()).tril().eq(0);
  Tensor weights = at::matmul(qkv[0], qkv[1].transpose(-2, -1)) / std::sqrt(width / kHeads);
  weights = at::dropout(weights.masked_fill(mask, -1e9).softmax(-1), 0.1, is_training());
  return dense("out", at::matmul(weights, qkv[2]).transpose(1, 2).reshape({batch, time, width}),
               width);
}

std::vector<ZooLoss> transformer(const Tensors& in) {
  Tensor x = embedding("words", in[0], kWords, kHidden) +
             get_variable("positions", {in[0].size(1), kHidden}, init::normal(0.1));
  for (int layer = 0; layer < 2; ++layer) {
    VariableScope scope("layer" + std::to_string(layer));
    x = x + attention(layer_norm("norm0", x));
    x = x + dense("fc1", at::gelu(dense("fc0", layer_norm("norm1", x), 4 * kHidden)), kHidden);
  }
  return next_word(x.transpose(0, 1), in[0].t());
}

// ---- embeddings

std::vector<ZooLoss> negative_sampling(const Tensors& in) {
  constexpr int64_t kNegatives = 3;
  const Tensor word = embedding("words", in[0], kWords, 8);
  const Tensor context = embedding("contexts", in[1], kWords, 8);
  const Tensor noise_ids = at::randint(0, kWords, {in[0].size(0), kNegatives}, in[0].options());
  const Tensor noise = [&] {
    VariableScope scope("contexts", Reuse::kAuto);
    return at::embedding(get_variable("W", {kWords, 8}), noise_ids);
  }();
  const Tensor similarity = (word * context).sum(1);
  const Tensor positive = at::log_sigmoid(similarity).mean();
  const Tensor negative = at::log_sigmoid(-at::bmm(noise, word.unsqueeze(2))).mean();
  named("prediction", similarity);
  return {{-(positive + negative)}};
}

std::vector<ZooLoss> matrix_factorisation(const Tensors& in) {
  const Tensor user = embedding("user", in[0], 20, 6);
  const Tensor item = embedding("item", in[1], 25, 6);
  const Tensor rating = (user * item).sum(1) + embedding("user_bias", in[0], 20, 1).squeeze(1) +
                        embedding("item_bias", in[1], 25, 1).squeeze(1);
  named("prediction", rating);
  return {{at::mse_loss(rating, in[2]) + 0.01 * (user.pow(2).mean() + item.pow(2).mean())}};
}

// ---- batches

at::Generator generator_of(uint64_t seed) { return at::detail::createCPUGenerator(seed + 100); }

Tensor random_ids(int64_t limit, at::IntArrayRef shape, const at::Generator& generator) {
  return at::randint(0, limit, shape, generator, at::TensorOptions(at::kLong));
}

ZooModel classifier(std::string name, Shape shape, Tensor (*logits)(Tensor)) {
  Shape batch = shape;
  batch[0] = 4;
  return {
      .name = std::move(name),
      .inputs = {{"x", std::move(shape)}, {"label", {-1}, at::kLong}},
      .build = [logits](const Tensors& in) -> std::vector<ZooLoss> {
        return {{at::cross_entropy_loss(named("prediction", logits(in[0])), in[1])}};
      },
      .make_batch = [batch](uint64_t seed) -> Tensors {
        const at::Generator generator = generator_of(seed);
        return {at::randn(batch, generator), random_ids(10, {batch[0]}, generator)};
      },
  };
}

ZooModel reconstruction(std::string name, Tensor (*decode)(const Tensor&)) {
  return {
      .name = std::move(name),
      .inputs = {{"x", {-1, 2, 16, 16}}},
      .build = [decode](const Tensors& in) -> std::vector<ZooLoss> {
        return {{at::binary_cross_entropy(named("prediction", decode(in[0])), in[0])}};
      },
      .make_batch = [](uint64_t seed) -> Tensors {
        return {at::rand({4, 2, 16, 16}, generator_of(seed))};
      },
  };
}

// Six words of five texts, or the other way round.
ZooModel language_model(std::string name, std::vector<ZooLoss> (*build)(const Tensors&),
                        Shape shape = {6, -1}) {
  return {
      .name = std::move(name),
      .inputs = {{"words", std::move(shape), at::kLong, {6, 5}}},
      .build = build,
      .make_batch = [](uint64_t seed) -> Tensors {
        return {random_ids(kWords, {6, 5}, generator_of(seed))};
      },
  };
}

std::vector<ZooModel> make_zoo() {
  std::vector<ZooModel> models = {
      classifier("Mlp", {-1, 64}, mlp),
      classifier("LogisticRegression", {-1, 64}, logistic_regression),
      classifier("LeNet", {-1, 1, 16, 16}, lenet),
      classifier("LeNetWithNormAndDropout", {-1, 1, 16, 16}, lenet_with_norm_and_dropout),
      classifier("ResNet18", {-1, 3, 16, 16}, resnet18),
      classifier("Vgg", {-1, 3, 16, 16}, vgg),
      classifier("DenseNet", {-1, 3, 8, 8}, densenet),
      reconstruction("UNet", unet),
      reconstruction("Autoencoder", autoencoder),
      language_model("Lstm", lstm),
      language_model("UnrolledLstm", unrolled_lstm),
      language_model("Gru", gru),
      language_model("UnrolledGru", unrolled_gru),
      language_model("Transformer", transformer, {-1, 5}),
  };
  models.push_back({
      .name = "Dcgan",
      .inputs = {{"image", {-1, 1, 16, 16}}, {"z", {-1, 6}}},
      .build = dcgan,
      .make_batch = [](uint64_t seed) -> Tensors {
        const at::Generator generator = generator_of(seed);
        return {at::rand({4, 1, 16, 16}, generator), at::randn({4, 6}, generator)};
      },
  });
  models.push_back({
      .name = "NegativeSampling",
      .inputs = {{"word", {-1}, at::kLong}, {"context", {-1}, at::kLong}},
      .build = negative_sampling,
      .make_batch = [](uint64_t seed) -> Tensors {
        const at::Generator generator = generator_of(seed);
        return {random_ids(kWords, {16}, generator), random_ids(kWords, {16}, generator)};
      },
  });
  models.push_back({
      .name = "MatrixFactorisation",
      .inputs = {{"user", {-1}, at::kLong}, {"item", {-1}, at::kLong}, {"rating", {-1}}},
      .build = matrix_factorisation,
      .make_batch = [](uint64_t seed) -> Tensors {
        const at::Generator generator = generator_of(seed);
        return {random_ids(20, {16}, generator), random_ids(25, {16}, generator),
                at::rand({16}, generator)};
      },
  });
  return models;
}

std::unique_ptr<Optimizer> make_optimizer(ZooOptimizer optimizer) {
  switch (optimizer) {
    case ZooOptimizer::kSgd:
      return std::make_unique<SGD>(SGDOptions{.lr = 0.01});
    case ZooOptimizer::kMomentum:
      return std::make_unique<SGD>(SGDOptions{.lr = 0.01, .momentum = 0.9});
    case ZooOptimizer::kAdam:
      return std::make_unique<Adam>(AdamOptions{.lr = 0.01});
  }
  return nullptr;
}

}  // namespace

std::string to_string(ZooOptimizer optimizer) {
  switch (optimizer) {
    case ZooOptimizer::kSgd:
      return "Sgd";
    case ZooOptimizer::kMomentum:
      return "Momentum";
    case ZooOptimizer::kAdam:
      return "Adam";
  }
  return "";
}

const std::vector<ZooModel>& zoo() {
  static const std::vector<ZooModel> models = make_zoo();
  return models;
}

Op define_training(Graph& graph, const ZooModel& model, ZooOptimizer optimizer) {
  return graph.define({
      .name = model.name,
      .inputs = model.inputs,
      .body =
          [&graph, build = model.build,
           optimizer = std::shared_ptr(make_optimizer(optimizer))](const Tensors& in) {
            TowerContext tower(graph);
            const std::vector<ZooLoss> losses = build(in);
            std::vector<Gradients> gradients(
                losses.size());  // all of them first: updates are in place
            for (size_t i = 0; i < losses.size(); ++i) {
              Tensors tensors;
              for (Variable* variable : graph.variables().trainable(losses[i].variables)) {
                gradients[i].push_back({variable, {}});
                tensors.push_back(variable->tensor);
              }
              const bool is_last = i + 1 == losses.size();
              const Tensors values =
                  torch::autograd::grad({losses[i].value}, tensors, {}, !is_last);
              for (size_t k = 0; k < values.size(); ++k) gradients[i][k].value = values[k];
            }
            NamedTensors outputs;
            at::NoGradGuard no_grad;
            for (size_t i = 0; i < losses.size(); ++i) {
              optimizer->apply_gradients(gradients[i]);
              outputs.emplace("loss" + std::to_string(i), losses[i].value);
            }
            return outputs;
          },
  });
}

std::string name_of(const ZooCase& c) { return c.model->name + to_string(c.optimizer); }

void PrintTo(const ZooCase& c, std::ostream* out) { *out << name_of(c); }

std::vector<ZooCase> all_zoo_cases() {
  std::vector<ZooCase> cases;
  for (const ZooModel& model : zoo()) {
    for (auto optimizer : {ZooOptimizer::kSgd, ZooOptimizer::kMomentum, ZooOptimizer::kAdam}) {
      cases.push_back({&model, optimizer});
    }
  }
  return cases;
}

ZooOutcome train(const ZooCase& c, int steps, SessionOptions options, c10::Device device) {
  at::manual_seed(3);
  Graph graph({.device = device, .seed = 1});
  const Op op = define_training(graph, *c.model, c.optimizer);
  graph.finalize();
  Session session(graph, options);
  Fetches losses;
  for (const auto& [name, spec] : op.outputs()) {
    if (name.starts_with("loss")) losses.push_back(name);
  }
  ZooOutcome outcome;
  for (int step = 0; step < steps; ++step) {
    const std::vector<at::Tensor> batch = c.model->make_batch(step);
    Feeds feeds;
    for (size_t i = 0; i < batch.size(); ++i) feeds[c.model->inputs[i].name] = batch[i];
    outcome.losses.push_back(session.run(op, losses, feeds).get());
  }
  for (const Variable& variable : graph.variables().all()) {
    outcome.variables.emplace(variable.name, variable.tensor.detach().cpu().clone());
  }
  return outcome;
}

}  // namespace tensorpack
