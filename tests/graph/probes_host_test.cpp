// SPDX-License-Identifier: Apache-2.0
// State outside the graph, and what cannot be recorded.
#include <ATen/CPUGeneratorImpl.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "tests/graph/probe.h"

namespace tensorpack {
namespace {

constexpr const char* kHostRead = "brings a tensor's value to the host";
constexpr const char* kDynamicShape = "whose shape depends on the data";

Probe refused(std::string name, std::function<Tensors(Tensors)> function, std::string message) {
  return {std::move(name), kSquare, std::move(function), Behaviour::kRefused, std::move(message)};
}

const std::vector<Probe> kRefusals = {
    refused(
        "Item", [](Tensors in) { return Tensors{in[0] * in[0].sum().item<float>()}; },
        "aten::_local_scalar_dense (called by aten::item) brings a tensor's value to the host"),
    refused(
        "Branch",
        [](Tensors in) {
          return (in[0] > 0).all().item<bool>() ? Tensors{in[0]} : Tensors{in[0] * 2};
        },
        kHostRead),
    refused(
        "IsNonzero",
        [](Tensors in) { return Tensors{in[0][0][0].is_nonzero() ? in[0] : in[0] * 2}; },
        kHostRead),
    refused(
        "Nonzero", [](Tensors in) { return Tensors{in[0].nonzero().sum()}; },
        "aten::nonzero makes a tensor whose shape depends on the data"),
    refused(
        "MaskedSelect", [](Tensors in) { return Tensors{in[0].masked_select(in[0] > 0).sum()}; },
        kDynamicShape),
    refused(
        "IndexByMask", [](Tensors in) { return Tensors{in[0].index({in[0] > 0}).sum()}; },
        kDynamicShape),
    refused(
        "WhereWithoutBranches", [](Tensors in) { return Tensors{at::where(in[0] > 0)[0].sum()}; },
        kDynamicShape),
    refused(
        "Unique",
        [](Tensors in) { return Tensors{std::get<0>(at::_unique2(in[0].detach().round())).sum()}; },
        kDynamicShape),
    refused(
        "UniqueOfOld",
        [](Tensors in) { return Tensors{std::get<0>(at::_unique(in[0].detach().round())).sum()}; },
        kDynamicShape),
    refused(
        "Equal", [](Tensors in) { return Tensors{in[0] * (at::equal(in[0], in[0]) ? 1 : 2)}; },
        "aten::equal"),
    refused(
        "Allclose",
        [](Tensors in) { return Tensors{in[0] * (at::allclose(in[0], in[0]) ? 1 : 2)}; },
        kHostRead),
    refused(
        "RepeatInterleaveByTensor",
        [](Tensors in) {
          auto repeats = in[0].select(1, 0).detach().abs().to(at::kLong) + 1;
          return Tensors{in[0].repeat_interleave(repeats, 0)};
        },
        kDynamicShape),
    refused(
        "Bincount",
        [](Tensors in) {
          return Tensors{in[0].detach().abs().to(at::kLong).flatten().bincount().sum()};
        },
        kDynamicShape),
    refused(
        "OneHot", [](Tensors in) { return Tensors{at::one_hot(in[0].detach().argmax(1), 5)}; },
        "(called by aten::one_hot) brings a tensor's value to the host"),
    refused(
        "ProdBackward", [](Tensors in) { return gradients(in[0].prod(), in); }, ""),
    refused(
        "ProdOfDimensionBackward", [](Tensors in) { return gradients(in[0].prod(1).sum(), in); },
        ""),
    refused(
        "ItemInBackward",
        [](Tensors in) {
          auto y = in[0] * 2;
          y.register_hook([](at::Tensor g) { return g * g.sum().item<float>(); });
          return gradients(y.sum(), in);
        },
        kHostRead),
};

at::Tensor captured = at::zeros({4});
at::Tensor weight = at::ones({4, 4}).set_requires_grad(true);
std::unique_ptr<torch::optim::Optimizer> optimizer;
int calls = 0;

at::Generator& own_generator() {
  static at::Generator generator = at::detail::createCPUGenerator(3);
  return generator;
}

void reset_weight() {
  at::NoGradGuard no_grad;
  weight.fill_(.1);
  weight.mutable_grad() = at::Tensor();
}

Tensors optimizer_step(const Tensors& in) {
  optimizer->zero_grad();
  auto loss = at::mm(in[0], weight).pow(2).mean();
  loss.backward();
  optimizer->step();
  return {loss, weight * 1};
}

const std::vector<Probe> kState = {
    {"CapturedTensor", kSquare,
     [](Tensors in) {
       at::NoGradGuard no_grad;
       captured.mul_(.9).add_(in[0].sum(0));
       return Tensors{captured + in[0]};
     },
     Behaviour::kEqual, "", [] { captured.zero_(); }},
    {"CapturedTensorThroughView", kSquare,
     [](Tensors in) {
       at::NoGradGuard no_grad;
       captured.narrow(0, 1, 2).add_(in[0].sum());
       captured.select(0, 0).add_(1);
       return Tensors{captured * in[0]};
     },
     Behaviour::kEqual, "", [] { captured.zero_(); }},
    {"OwnGenerator", kSquare,
     [](Tensors in) { return Tensors{in[0] + at::rand({4}, own_generator())}; }, Behaviour::kEqual,
     "", [] { own_generator().set_current_seed(3); }},
    {"BackwardIntoUndefinedGrad", kSquare,
     [](Tensors in) {
       weight.mutable_grad() = at::Tensor();
       at::mm(in[0], weight).pow(2).sum().backward();
       return Tensors{weight.grad() * 1};
     }},
    {"BackwardIntoZeroedGrad", kSquare,
     [](Tensors in) {
       weight.mutable_grad().zero_();
       at::mm(in[0], weight).pow(2).sum().backward();
       return Tensors{weight.grad() * 1};
     },
     Behaviour::kEqual, "",
     [] {
       weight.mutable_grad() = at::zeros({4, 4});
     }},
    {"PlainSgdOfLibtorch", kSquare, optimizer_step, Behaviour::kEqual, "",
     [] {
       reset_weight();
       weight.mutable_grad() = at::zeros({4, 4});
       optimizer =
           std::make_unique<torch::optim::SGD>(Tensors{weight}, torch::optim::SGDOptions(.01));
     }},
    {"MomentumOfLibtorchIsFrozen", kSquare, optimizer_step, Behaviour::kFrozen, "",
     [] {
       reset_weight();
       optimizer = std::make_unique<torch::optim::SGD>(Tensors{weight},
                                                       torch::optim::SGDOptions(.01).momentum(.9));
     }},
    {"AdamOfLibtorchIsFrozen", kSquare, optimizer_step, Behaviour::kFrozen, "",
     [] {
       reset_weight();
       optimizer =
           std::make_unique<torch::optim::Adam>(Tensors{weight}, torch::optim::AdamOptions(.01));
     }},
    {"DataPointerIsFrozen", kSquare,
     [](Tensors in) { return Tensors{in[0] * in[0].data_ptr<float>()[0]}; }, Behaviour::kFrozen},
    {"HostCounterIsFrozen", kSquare, [](Tensors in) { return Tensors{in[0] * ++calls}; },
     Behaviour::kFrozen, "", [] { calls = 0; }},
};

}  // namespace

TP_PROBES(RefusalProbeTest, kRefusals);
TP_PROBES(StateProbeTest, kState);

}  // namespace tensorpack
