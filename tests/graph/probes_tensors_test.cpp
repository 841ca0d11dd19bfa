// SPDX-License-Identifier: Apache-2.0
// Factories, host data, views, in-place writes, lists and indexing.
#include <torch/types.h>

#include "tests/graph/probe.h"

namespace tensorpack {
namespace {

using torch::indexing::Slice;
const auto kConstantSquare = randn({{4, 4}}, false);

const std::vector<Probe> kFactories = {
    {"ConstantFactories", kSquare,
     [](Tensors in) {
       return Tensors{in[0] + at::zeros({4}) + at::full({4}, 2.5) + at::arange(4) +
                      at::ones({4, 4}) + at::eye(4) + at::linspace(0, 1, 4) + at::scalar_tensor(3)};
     }},
    {"LikeFactories", kSquare,
     [](Tensors in) {
       return Tensors{in[0] + at::zeros_like(in[0]) + at::ones_like(in[0]) +
                      at::full_like(in[0], 2) + in[0].new_zeros({4}) + in[0].new_full({4}, 7)};
     }},
    {"RandomFactories", kSquare,
     [](Tensors in) {
       return Tensors{in[0] + at::randn({4}) + at::rand({4, 4}) + at::randint(0, 9, {4}) +
                      at::randperm(4) + at::rand_like(in[0]) + at::randn_like(in[0])};
     }},
    {"RandomInPlace", kSquare,
     [](Tensors in) {
       auto noise = at::empty({4, 4});
       noise.normal_();
       return Tensors{in[0] + noise + at::empty({4}).uniform_() + at::bernoulli(at::full({4}, .5)) +
                      at::empty({4}).exponential_()};
     }},
    {"RandomOrderIsKept", kSquare,
     [](Tensors in) {
       at::rand({3});  // nobody uses it, but it moves the generator
       return Tensors{in[0] + at::rand({4}), in[0] * at::rand({4})};
     }},
    {"Multinomial", randn({{5}}, false),
     [](Tensors in) { return Tensors{at::multinomial(in[0].exp(), 3)}; }},
    {"TensorLiteral", kSquare,
     [](Tensors in) {
       return Tensors{in[0] * torch::tensor({1.F, 2.F, 3.F, 4.F})};
     }},
    {"NestedTensorLiteral", kSquare,
     [](Tensors in) {
       return Tensors{
           at::matmul(in[0], torch::tensor({{1.F, 2.F}, {3.F, 4.F}, {5.F, 6.F}, {7.F, 8.F}}))};
     }},
    {"TensorOfVector", kSquare,
     [](Tensors in) {
       return Tensors{in[0] * torch::tensor(std::vector<float>{1, 2, 3, 4})};
     }},
    {"ScalarTensorLiteral", kSquare,
     [](Tensors in) { return Tensors{in[0] * torch::tensor(3.0)}; }},
    {"WrappedNumbersKeepTypePromotion", kSquare,
     [](Tensors in) {
       auto ints = (in[0].detach() * 10).to(at::kInt);
       return Tensors{ints + 2.5, ints * 2, in[0] / 3, 1 - in[0]};
     }},
    {"FromBlob", kSquare,
     [](Tensors in) {
       static float data[4] = {1, 2, 3, 4};
       return Tensors{in[0] + at::from_blob(data, {4})};
     }},
    {"HostFillByAccessor", kSquare,
     [](Tensors in) {
       auto filled = at::empty({4});
       auto access = filled.accessor<float, 1>();
       for (int i = 0; i < 4; ++i) access[i] = static_cast<float>(i);
       return Tensors{in[0] + filled};
     }},
    {"HostFillReadThroughView", kSquare,
     [](Tensors in) {
       auto filled = at::empty({2, 4});
       for (int i = 0; i < 8; ++i) filled.data_ptr<float>()[i] = static_cast<float>(i);
       return Tensors{in[0] + filled[1]};
     }},
    {"HostFillThenWritten", kSquare,
     [](Tensors in) {
       auto filled = torch::tensor({1.F, 2.F, 3.F, 4.F});
       filled.add_(1);
       return Tensors{in[0] + filled};
     }},
    {"HostFillReadThenWritten", kSquare,
     [](Tensors in) {
       auto filled = torch::tensor({1.F, 2.F, 3.F, 4.F});
       auto sum = in[0].detach() + filled;
       filled.mul_(sum[0]);
       return Tensors{sum, filled};
     }},
    {"HostFillPartlyOverwritten", kSquare,
     [](Tensors in) {
       auto filled = torch::tensor({1.F, 2.F, 3.F, 4.F});
       filled.index_put_({torch::tensor({1})}, in[0].detach().sum());
       return Tensors{filled * 2};
     }},
    {"EmptyFilledInPieces", kSquare,
     [](Tensors in) {
       auto whole = at::empty({4, 4});
       whole.narrow(0, 0, 2).copy_(in[0].detach().narrow(0, 2, 2));
       whole.narrow(0, 2, 2).fill_(3);
       return Tensors{whole};
     }},
    {"HostFillOfZeros", kSquare,
     [](Tensors in) {
       auto filled = at::zeros({4});
       auto access = filled.accessor<float, 1>();
       for (int i = 0; i < 4; ++i) access[i] = static_cast<float>(i);
       return Tensors{in[0] + filled};
     }},
};

const std::vector<Probe> kViews = {
    {"ViewsOfViews", kSquare,
     [](Tensors in) {
       auto y = in[0].view({2, 8}).t().narrow(0, 1, 4).unsqueeze(0).expand({3, 4, 2});
       auto loss = (y * y).sum();
       return Tensors{loss, gradients(loss, in)[0]};
     }},
    {"InPlaceOnViews", kSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       y.narrow(0, 0, 2).mul_(3);
       y.select(1, 0).add_(1);
       return Tensors{y, gradients(y.pow(2).sum(), in)[0]};
     }},
    {"ReadBetweenWrites", kConstantSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       auto before = y.sum();
       auto view = y.narrow(0, 1, 2);
       view.mul_(3);
       auto between = y.sum();
       y.add_(1);
       return Tensors{before, between, y.sum(), view};
     }},
    {"SliceAssignment", kSquare,
     [](Tensors in) {
       auto y = at::zeros({6, 4});
       y.index_put_({Slice(1, 5)}, in[0]);
       y.index_put_({torch::tensor({0, 5})}, in[0].index({Slice(0, 2)}));
       return Tensors{y, gradients((y * y).sum(), in)[0]};
     }},
    {"InPlaceChain", kSquare,
     [](Tensors in) {
       auto y = (in[0] * 2).mul_(3).add_(1).sigmoid_();
       return Tensors{y, gradients(y.sum(), in)[0]};
     }},
    {"MetadataInPlace", randn({{4, 1, 3}}),
     [](Tensors in) {
       auto y = in[0] * 2;
       auto z = y.detach();
       y.squeeze_(1);
       y.t_();
       y.unsqueeze_(0);
       return Tensors{y, z, gradients(y.pow(3).sum(), in)[0]};
     }},
    {"TransposeInPlaceAndBack", kConstantSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       y.t_();
       auto a = y.narrow(0, 0, 1) * 1;
       y.t_();
       return Tensors{y, a, y.narrow(0, 0, 1) * 1};
     }},
    {"DetachForms", kSquare,
     [](Tensors in) {
       auto y = (in[0] * 2).detach();
       auto z = in[0].data() + 1;
       auto q = (in[0] * 3).detach_();
       return Tensors{y, z, q, in[0].variable_data() * 2};
     }},
    {"SetData", kSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       auto z = in[0].detach() * 3;
       auto w = at::empty({4, 4});
       w.set_data(z);
       return Tensors{w + y};
     }},
    {"SetDataOfView", kSquare,
     [](Tensors in) {
       auto z = in[0].detach() * 3;
       auto w = at::empty({2, 4});
       w.set_data(z.narrow(0, 1, 2));
       z.add_(1);
       return Tensors{w * 2};
     }},
    {"ResizeAndOut", kSquare,
     [](Tensors in) {
       at::NoGradGuard no_grad;
       auto out = at::empty({0});
       at::add_out(out, in[0], in[0]);
       auto grown = at::empty({2});
       grown.resize_({4, 4});
       grown.copy_(in[0]);
       return Tensors{out, grown};
     }},
    {"OutIntoView", kConstantSquare,
     [](Tensors in) {
       auto whole = at::zeros({8, 4});
       auto half = whole.narrow(0, 4, 4);
       at::mul_out(half, in[0], in[0]);
       return Tensors{whole};
     }},
    {"SetToOtherTensor", kConstantSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       auto z = at::empty({0});
       z.set_(y);
       z.add_(1);
       return Tensors{y, z};
     }},
    {"SetToMemoryOfAResult", kConstantSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       auto z = at::empty({0});
       z.set_(y.storage(), 0, {16}, {1});
       return Tensors{z + 1};
     }},
    {"SetToRawMemory", kConstantSquare,
     [outside = at::ones({16})](Tensors in) {
       auto z = at::empty({0});
       z.set_(outside.storage(), 0, {16}, {1});
       return Tensors{in[0].flatten() + z};
     },
     Behaviour::kRefused, "takes raw memory"},
    {"SameTensorTwice", kSquare,
     [](Tensors in) {
       auto y = in[0] * in[0];
       auto loss = (y * y + at::mm(y, y)).sum();
       return Tensors{loss, gradients(loss, in)[0]};
     }},
    {"FanOut", kSquare,
     [](Tensors in) {
       auto y = in[0].sin();
       auto loss = (y * 1 + y * 2 + y.cos() + y.exp() + y * y).sum();
       return Tensors{loss, gradients(loss, in)[0]};
     }},
    {"UndefinedGradient", randn({{4, 4}, {4, 4}}),
     [](Tensors in) {
       auto loss = in[0].sum();
       auto grads = gradients(loss, in);
       return Tensors{loss, grads[0], grads[1]};
     }},
    {"InputIsOutput", kSquare,
     [](Tensors in) {
       return Tensors{in[0], in[0] + 1};
     }},
    {"InputOverwritten", kConstantSquare,
     [](Tensors in) {
       in[0].mul_(2);
       return Tensors{in[0] + 1};
     }},
    {"OutputOverwrittenLater", kSquare,
     [](Tensors in) {
       auto y = in[0] * 2;
       auto z = y.detach();
       z.add_(1);
       return Tensors{z};
     }},
    {"OutputIsViewOfOutput", kSquare,
     [](Tensors in) {
       auto y = in[0].exp();
       return Tensors{y, y.t(), y.narrow(0, 1, 2), y[0][1]};
     }},
    {"EqualExpressions", kSquare,
     [](Tensors in) {
       auto a = in[0].exp();
       auto b = in[0].exp();
       b.add_(1);
       return Tensors{a, b, in[0].exp() * 2};
     }},
    {"ComplexAndFft", randn({{8}}),
     [](Tensors in) {
       auto z = at::fft_rfft(in[0]);
       auto loss = at::real(z * z.conj()).sum() + at::imag(z.conj()).sum() +
                   at::view_as_real(z.conj().resolve_conj()).pow(2).sum();
       return Tensors{loss, gradients(loss, in)[0]};
     }},
    {"ConjugateOutput", kConstantSquare,
     [](Tensors in) {
       auto z = at::complex(in[0], in[0] * 2);
       return Tensors{at::view_as_real(z.conj().resolve_conj()), at::imag(z.conj())};
     }},
    {"ViewAsOtherType", kSquare,
     [](Tensors in) { return Tensors{in[0].detach().view(at::kInt) + 1}; }},
    {"ChannelsLast", randn({{2, 3, 4, 5}}),
     [](Tensors in) {
       auto y = in[0].contiguous(at::MemoryFormat::ChannelsLast);
       auto loss = (y.exp() * in[0]).sum();
       return Tensors{y.exp(), loss, gradients(loss, in)[0]};
     }},
    {"ExpandedArithmetic", randn({{4, 1}, {1, 4}}),
     [](Tensors in) {
       auto loss = (in[0].expand({4, 4}) * in[1].expand({4, 4})).sum();
       auto grads = gradients(loss, in);
       return Tensors{loss, grads[0], grads[1]};
     }},
    {"EmptyTensors", randn({{0, 4}, {4}}),
     [](Tensors in) {
       auto y = at::cat({in[0], in[1].unsqueeze(0)});
       return Tensors{y, in[0].sum(), gradients(y.sum(), in)[1]};
     }},
};

const std::vector<Probe> kLists = {
    {"CatStackChunkUnbind", kSquare,
     [](Tensors in) {
       auto chunks = in[0].chunk(2, 1);
       auto parts = at::stack({chunks[1], chunks[0]}).unbind(0);
       auto loss = at::cat({parts[0], parts[1] * 2}, 1).pow(2).sum();
       return Tensors{loss, gradients(loss, in)[0]};
     }},
    {"SplitWithUnusedParts", kConstantSquare,
     [](Tensors in) {
       auto parts = in[0].split_with_sizes({1, 2, 1});
       return Tensors{parts[1] * 2};
     }},
    {"WriteToPartOfSplit", kConstantSquare,
     [](Tensors in) {
       auto y = in[0] * 1;
       auto parts = y.split(2);
       parts[0].add_(parts[1]);
       return Tensors{y};
     }},
    {"IndexWithTensors", randn({{4, 5, 6}}),
     [](Tensors in) {
       auto y = in[0].index({Slice(), torch::tensor({1, 3}), torch::tensor({2, 2})});
       return Tensors{y, gradients(y.pow(2).sum(), in)[0]};
     }},
    {"SortTopkMax", randn({{6, 9}}),
     [](Tensors in) {
       auto [top, where] = in[0].topk(3);
       auto [sorted, order] = in[0].sort(1);
       auto [largest, rows] = in[0].max(0);
       auto loss = top.sum() + (sorted * at::arange(9)).sum() + largest.pow(2).sum();
       return Tensors{loss, where, gradients(loss, in)[0]};
     }},
    {"GatherScatterWhere", randn({{6, 9}}),
     [](Tensors in) {
       auto mask = in[0] > 0;
       auto index = in[0].argmax(1, true);
       auto y = at::where(mask, in[0], in[0] * .1).masked_fill(mask.logical_not(), .5);
       auto s = at::zeros({6, 9}).scatter_add(1, index, in[0].gather(1, index));
       auto loss = (y * s).sum();
       return Tensors{loss, gradients(loss, in)[0]};
     }},
    {"Einsum", randn({{3, 4, 5}, {3, 5, 4}}),
     [](Tensors in) {
       auto y = at::einsum("bij,bjk->bik", {in[0], in[1]}) + at::bmm(in[0], in[1]);
       auto loss = y.tanh().sum();
       auto grads = gradients(loss, in);
       return Tensors{loss, grads[0], grads[1]};
     }},
    {"Foreach", randn({{4}, {5}}, false),
     [](Tensors in) {
       auto y = at::_foreach_mul(in, 2.0);
       at::_foreach_add_(y, in, 3);
       at::_foreach_mul_(y, 0.5);
       auto norms = at::_foreach_norm(y);
       return Tensors{y[0], y[1], norms[0]};
     }},
    {"MaskedAssignment", kSquare,
     [](Tensors in) {
       auto y = in[0].detach().clone();
       y.index_put_({y > 0}, 3.F);
       return Tensors{y};
     }},
    {"AccumulatingIndexPut", kConstantSquare,
     [](Tensors in) {
       auto y = at::zeros({4, 4});
       y.index_put_({torch::tensor({1, 1, 2})}, in[0].narrow(0, 0, 3), /*accumulate=*/true);
       return Tensors{y};
     }},
    {"Meshgrid", randn({{3}, {4}}, false),
     [](Tensors in) {
       auto grid = at::meshgrid({in[0], in[1]}, "ij");
       return Tensors{grid[0] * grid[1]};
     }},
    {"RepeatRollFlipPad", kSquare,
     [](Tensors in) {
       auto y = in[0].repeat({2, 1}).roll(1, 0).flip({1});
       auto loss = (at::constant_pad_nd(y, {1, 1}, 2) * at::arange(6)).sum();
       return Tensors{loss, gradients(loss, in)[0]};
     }},
    {"TriangleDiagonalCumsum", kSquare,
     [](Tensors in) {
       auto loss = (in[0].tril() + in[0].triu(1) * 2).cumsum(0).sum() + in[0].diagonal().prod(0) +
                   at::trace(in[0]);
       return Tensors{loss.detach(), in[0].cumprod(1)};
     }},
};

}  // namespace

TP_PROBES(FactoryProbeTest, kFactories);
TP_PROBES(ViewProbeTest, kViews);
TP_PROBES(ListProbeTest, kLists);

}  // namespace tensorpack
