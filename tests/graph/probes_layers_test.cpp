// SPDX-License-Identifier: Apache-2.0
// Layers, losses, linear algebra, random layers and what autograd can do.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "tensorpack/utils/torch_compat.h"
#include "tests/graph/probe.h"

namespace tensorpack {
namespace {

using torch::autograd::AutogradContext;

Tensors indices_and_table() {
  return {at::randint(0, 10, {4, 3}), at::randn({10, 5}).set_requires_grad(true)};
}

// What a function returns together with all its gradients.
Tensors with_gradients(const at::Tensor& loss, const Tensors& inputs) {
  Tensors all{loss};
  for (const at::Tensor& gradient : gradients(loss, inputs)) all.push_back(gradient);
  return all;
}

const std::vector<Probe> kLayers = {
    {"Convolutions", randn({{2, 4, 9, 9}, {4, 2, 3, 3}, {4, 3, 3, 3}}),
     [](Tensors in) {
       auto y = at::conv2d(in[0], in[1], {}, 1, at::IntArrayRef{1, 1}, 1, 2);
       y = at::conv_transpose2d(y, in[2], {}, 2);
       auto z = at::conv1d(in[0].select(2, 0), in[1].select(3, 0), {}, 1, at::IntArrayRef{0}, 1, 2);
       return with_gradients(y.pow(2).sum() + z.sum(), in);
     }},
    {"Conv3d", randn({{1, 2, 4, 4, 4}, {3, 2, 2, 2, 2}, {3}}),
     [](Tensors in) { return with_gradients(at::conv3d(in[0], in[1], in[2]).pow(2).sum(), in); }},
    {"PoolingAndResizing", randn({{2, 4, 8, 8}}),
     [](Tensors in) {
       auto y = at::avg_pool2d(in[0], 2) + std::get<0>(at::adaptive_max_pool2d(in[0], {4, 4})) +
                at::max_pool2d(in[0], 2);
       auto z = at::upsample_bilinear2d(y, {8, 8}, false) + at::upsample_nearest2d(y, {8, 8});
       auto p = at::reflection_pad2d(z, {1, 1, 1, 1});
       auto u = at::im2col(p, {3, 3}, {1, 1}, {0, 0}, {1, 1});
       return with_gradients(u.pow(2).sum(), in);
     }},
    {"Norms", randn({{2, 4, 6, 6}, {4}, {4}}),
     [](Tensors in) {
       auto y = at::group_norm(in[0], 2, in[1], in[2]);
       y = at::instance_norm(y, in[1], in[2], {}, {}, true, .1, 1e-5, false);
       return with_gradients(at::layer_norm(y, {6, 6}).pow(3).sum(), in);
     }},
    {"BatchNormWithoutStatistics", randn({{4, 3, 5, 5}, {3}, {3}}),
     [](Tensors in) {
       auto y = at::batch_norm(in[0], in[1], in[2], {}, {}, true, .1, 1e-5, false);
       return with_gradients(y.pow(3).sum(), in);
     }},
    {"Activations", kSquare,
     [](Tensors in) {
       auto x = in[0];
       auto y = at::relu(x) + at::gelu(x) + at::elu(x) + at::selu(x) + at::silu(x) + at::mish(x) +
                at::softplus(x) + at::leaky_relu(x, .1) + at::hardtanh(x) + at::hardswish(x) +
                at::log_sigmoid(x) + at::prelu(x, at::full({1}, .2)) + at::glu(x.repeat({1, 2})) +
                at::softmax(x, 1) + at::log_softmax(x, 0) + x.clamp(-1, 1) + x.abs();
       return with_gradients(y.sum(), in);
     }},
    {"EmbeddingAndBag", indices_and_table,
     [](Tensors in) {
       auto bag = at::embedding_bag(in[1], in[0].flatten(), at::arange(0, 12, 3));
       auto loss = at::embedding(in[1], in[0]).pow(2).sum() + std::get<0>(bag).pow(2).sum();
       return Tensors{loss, gradients(loss, {in[1]})[0]};
     }},
    {"SparseEmbeddingGradient", indices_and_table,
     [](Tensors in) {
       auto loss = at::embedding(in[1], in[0], -1, false, /*sparse=*/true).pow(2).sum();
       return Tensors{loss, gradients(loss, {in[1]})[0]};
     }},
    {"SparseGradientApplied", indices_and_table,
     [](Tensors in) {
       auto table = in[1].detach() * 1;
       table.requires_grad_(true);
       auto loss = at::embedding(table, in[0], -1, false, /*sparse=*/true).pow(2).sum();
       auto gradient = gradients(loss, {table})[0];
       at::NoGradGuard no_grad;
       table.add_(gradient, -0.1);
       return Tensors{table};
     }},
    {"Lstm", randn({{5, 3, 4}, {1, 3, 6}, {1, 3, 6}, {24, 4}, {24, 6}, {24}, {24}}),
     [](Tensors in) {
       auto out = at::lstm(in[0], {in[1], in[2]}, {in[3], in[4], in[5], in[6]}, true, 1, 0., true,
                           false, false);
       return with_gradients(std::get<0>(out).pow(2).sum() + std::get<2>(out).sum(), in);
     }},
    {"LstmOfTwoLayersWithDropout",
     randn({{5, 3, 4}, {2, 3, 4}, {2, 3, 4}, {16, 4}, {16, 4}, {16}, {16}}),
     [](Tensors in) {
       Tensors weights{in[3], in[4], in[5], in[6], in[3], in[4], in[5], in[6]};
       auto out = at::lstm(in[0], {in[1], in[2]}, weights, true, 2, .5, true, false, false);
       return with_gradients(std::get<0>(out).pow(2).sum(), in);
     }},
    {"Gru", randn({{5, 3, 4}, {1, 3, 6}, {18, 4}, {18, 6}, {18}, {18}}),
     [](Tensors in) {
       auto out =
           at::gru(in[0], in[1], {in[2], in[3], in[4], in[5]}, true, 1, 0., true, false, false);
       return with_gradients(std::get<0>(out).pow(2).sum(), in);
     }},
    {"Losses", randn({{6, 5}, {6, 5}}),
     [](Tensors in) {
       auto target = in[1].detach().sigmoid();
       auto loss = at::binary_cross_entropy_with_logits(in[0], target) +
                   at::smooth_l1_loss(in[0], target) + at::mse_loss(in[0], target) +
                   at::kl_div(in[0].log_softmax(1), target.softmax(1)) +
                   at::cross_entropy_loss(in[0], target.argmax(1), at::arange(5).to(at::kFloat)) +
                   at::huber_loss(in[0], target) + at::l1_loss(in[0], target) +
                   (1 - at::cosine_similarity(in[0], in[1])).mean();
       return with_gradients(loss, in);
     }},
    {"CtcLoss", randn({{10, 2, 6}}),
     [](Tensors in) {
       auto loss = at::ctc_loss(in[0].log_softmax(2), torch::tensor({{1, 2, 3}, {2, 2, 4}}),
                                at::IntArrayRef{10, 10}, at::IntArrayRef{3, 3});
       return with_gradients(loss, in);
     }},
    {"LinearAlgebra", kSquare,
     [](Tensors in) {
       auto a = at::mm(in[0], in[0].t()) + at::eye(4) * 4;
       auto loss = at::linalg_cholesky(a).sum() + at::linalg_inv(a).sum() + at::logdet(a) +
                   at::linalg_solve(a, at::ones({4, 2})).sum();
       return with_gradients(loss, in);
     }},
    {"Decompositions", kSquare,
     [](Tensors in) {
       auto loss = std::get<0>(at::linalg_eigh(in[0] + in[0].t())).pow(2).sum() +
                   std::get<1>(at::linalg_svd(in[0])).sum();
       return with_gradients(loss, in);
     }},
    {"Reductions", kSquare,
     [](Tensors in) {
       auto loss = in[0].norm() + in[0].var(0).sum() + in[0].std() + in[0].logsumexp(1).sum() +
                   in[0].cumsum(0).pow(2).sum() + in[0].mean() + in[0].amax(1).sum();
       return with_gradients(loss, in);
     }},
};

struct Square : torch::autograd::Function<Square> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * x;
  }
  static Tensors backward(AutogradContext* context, Tensors gradient) {
    return {gradient[0] * context->get_saved_variables()[0] * 2};
  }
};

// Computes behind the dispatcher.
struct RawDouble : torch::autograd::Function<RawDouble> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) {
    auto y = at::empty_like(x);
    const float* from = x.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * from[i];
    return y;
  }
  static Tensors backward(AutogradContext*, Tensors gradient) { return {gradient[0] * 2}; }
};

const std::vector<Probe> kAutograd = {
    {"DoubleBackward", kSquare,
     [](Tensors in) {
       auto loss = in[0].sin().pow(2).sum();
       auto penalty = gradients(loss, in, /*create_graph=*/true)[0].pow(2).sum();
       return Tensors{loss, penalty, gradients(penalty, in)[0]};
     }},
    {"GradientPenaltyOfConvolution", randn({{2, 3, 6, 6}, {4, 3, 3, 3}}),
     [](Tensors in) {
       auto score = at::leaky_relu(at::conv2d(in[0], in[1]), .2).mean();
       auto penalty = (gradients(score, {in[0]}, true)[0].norm() - 1).pow(2);
       return Tensors{penalty, gradients(penalty, {in[1]})[0]};
     }},
    {"CustomFunction", kSquare,
     [](Tensors in) { return with_gradients(Square::apply(in[0]).sum(), in); }},
    {"CustomFunctionOnPointersIsFrozen", kSquare,
     [](Tensors in) { return with_gradients(RawDouble::apply(in[0]).sum(), in); },
     Behaviour::kFrozen},
    {"GradientHook", kSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       y.register_hook([](at::Tensor gradient) { return gradient * 3; });
       return with_gradients(y.pow(2).sum(), in);
     }},
    {"GradientClipping", kSquare,
     [](Tensors in) {
       auto gradient = gradients(in[0].pow(2).sum(), in)[0];
       at::NoGradGuard no_grad;
       return Tensors{gradient.mul_(at::clamp_max(1.0 / (gradient.norm() + 1e-6), 1.0))};
     }},
    {"NoGradRegions", kSquare,
     [](Tensors in) {
       at::Tensor y;
       {
         at::NoGradGuard no_grad;
         y = in[0].exp();
       }
       return with_gradients((y * in[0]).sum(), in);
     }},
    {"Dropouts", randn({{3, 4, 5, 5}}),
     [](Tensors in) {
       auto y = at::dropout(in[0], .3, true) + at::feature_dropout(in[0], .3, true) +
                at::alpha_dropout(in[0], .2, true) + at::rrelu(in[0], .1, .3, true);
       return with_gradients(y.pow(2).sum(), in);
     }},
    {"DropoutInPlace", randn({{3, 40}}),
     [](Tensors in) {
       auto y = in[0] * 2;
       at::dropout_(y, .5, true);
       return with_gradients(y.sum(), in);
     }},
    {"GumbelSoftmax", kSquare,
     [](Tensors in) {
       auto noise = -at::empty_like(in[0]).exponential_().log();
       return with_gradients(((in[0] + noise) / .5).softmax(1).pow(2).sum(), in);
     }},
    {"Bfloat16", kSquare,
     [](Tensors in) {
       auto half = in[0].to(at::kBFloat16);
       return with_gradients(at::mm(half, half).to(at::kFloat).sum(), in);
     }},
    {"DoublePrecision", kSquare,
     [](Tensors in) { return with_gradients(in[0].to(at::kDouble).exp().sum(), in); }},
    {"Autocast", kSquare,
     [](Tensors in) {
       set_autocast(at::kCPU, true, at::kBFloat16);
       auto y = at::mm(in[0], in[0]).to(at::kFloat);
       set_autocast(at::kCPU, false, at::kBFloat16);
       at::autocast::clear_cache();
       return with_gradients(y.sum(), in);
     }},
    {"StraightThrough", kSquare,
     [](Tensors in) {
       auto y = in[0] + (in[0].round() - in[0]).detach();
       return with_gradients((y * in[0]).sum(), in);
     }},
    {"CheckpointedRecompute", kSquare,
     [](Tensors in) {
       auto x = in[0].detach().requires_grad_(true);
       auto gradient = gradients(x.sin().exp().sum(), {x})[0];
       return Tensors{gradient};
     }},
};

}  // namespace

TP_PROBES(LayerProbeTest, kLayers);
TP_PROBES(AutogradProbeTest, kAutograd);

}  // namespace tensorpack
