// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/kernel_cases.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/bias_relu.h"
#include "tensorpack/cuda/kernels/cast.h"
#include "tensorpack/cuda/kernels/column_sum.h"
#include "tensorpack/cuda/kernels/concat_sum.h"
#include "tensorpack/cuda/kernels/cross_entropy.h"
#include "tensorpack/cuda/kernels/embedding_gradient.h"
#include "tensorpack/cuda/kernels/layer_norm.h"

namespace tensorpack::cuda {
namespace {

// Of the largest magnitude: bfloat16 keeps 8 bits, half 11.
double tolerance_of(c10::ScalarType type) {
  if (type == c10::kBFloat16) return 1.0 / 128;
  return type == c10::kHalf ? 1.0 / 1024 : 2e-5;
}

void expect_within(const at::Tensor& expected, const at::Tensor& value, double tolerance,
                   const std::string& what) {
  ASSERT_EQ(expected.sizes(), value.sizes()) << what;
  const at::Tensor e = expected.to(at::kDouble).cpu(), v = value.to(at::kDouble).cpu();
  const double scale = std::max(e.abs().max().item<double>(), 1e-2);
  EXPECT_LE((e - v).abs().max().item<double>(), tolerance * scale) << what;
}

struct Data {
  at::Tensor x, residual, grad, other, weight, bias, running_mean, running_var;
};

Data make_data(const BatchNormCase& of, c10::Device device) {
  at::manual_seed(11);
  const auto draw = [&](double mean) {
    at::Tensor t = at::randn(of.sizes).mul_(2).add_(mean).to(of.type);
    if (t.dim() == 4) t = t.contiguous(at::MemoryFormat::ChannelsLast);
    return t.to(device);
  };
  const int64_t channels = of.sizes[1];
  const auto vector = [&] { return at::rand({channels}).add_(0.5).to(device); };
  // A mean far from zero shows sums that lose digits.
  return {draw(9), draw(0), draw(0), draw(0), vector(), vector() - 1, vector(), vector()};
}

at::Tensor in_float(const at::Tensor& tensor) { return tensor.to(at::kFloat).contiguous(); }

BatchNormArguments forward_of(const Data& d, bool affine, bool residual, bool relu) {
  BatchNormArguments a{.input = d.x,
                       .running_mean = d.running_mean.clone(),
                       .running_var = d.running_var.clone(),
                       .momentum = 0.25,
                       .epsilon = 1e-3,
                       .relu = relu};
  if (affine) a.weight = d.weight, a.bias = d.bias;
  if (residual) a.residual = d.residual;
  return a;
}

// The same in float and contiguous, which libtorch computes in another way.
BatchNormArguments in_float(BatchNormArguments a) {
  a.input = in_float(a.input);
  if (a.residual) a.residual = in_float(*a.residual);
  a.running_mean = a.running_mean->clone();
  a.running_var = a.running_var->clone();
  return a;
}

BatchNormBackwardArguments in_float(BatchNormBackwardArguments a) {
  a.grad = in_float(a.grad);
  a.input = in_float(a.input);
  if (a.other) a.other = in_float(*a.other);
  if (a.output) a.output = in_float(*a.output);
  return a;
}

void expect_zeros(const at::Tensor& counters) {
  EXPECT_EQ(counters.abs().sum().item<int64_t>(), 0) << "counters are not ready for the next one";
}

}  // namespace

std::vector<BatchNormCase> batch_norm_cases() {
  return {{{2, 8, 5, 7}, c10::kBFloat16}, {{3, 64, 3, 3}, c10::kFloat}, {{1, 3, 3, 2}, c10::kFloat},
          {{2, 1, 3, 3}, c10::kFloat},    {{700, 20}, c10::kFloat},     {{5, 7}, c10::kFloat},
          {{2, 320, 2, 3}, c10::kHalf},   {{4, 24, 9, 1}, c10::kHalf}};
}

void expect_batch_norm_as_unfused(const BatchNormCase& of, const Launcher& launcher,
                                  c10::Device device) {
  const Data d = make_data(of, device);
  const at::Tensor counters = make_counters(device);
  const double tolerance = tolerance_of(of.type);
  constexpr double kFloats = 2e-5;
  for (const auto& [affine, residual, relu] : std::vector<std::tuple<bool, bool, bool>>{
           {true, false, false}, {true, false, true}, {true, true, true}, {false, true, false}}) {
    BatchNormArguments a = forward_of(d, affine, residual, relu);
    a.keep_bits = relu && has_relu_bits(of.type, of.sizes[1]);
    const BatchNormArguments reference = in_float(a);
    const auto [y, mean, invstd, bits] = batch_norm_act(a, counters, launcher);
    const auto [y0, mean0, invstd0, bits0] = batch_norm_act_unfused(reference);
    EXPECT_EQ(bits.defined(), a.keep_bits);
    EXPECT_EQ(y.strides(), a.input.strides());
    EXPECT_EQ(y.scalar_type(), of.type);
    expect_within(y0, y, tolerance, "y");
    expect_within(mean0, mean, kFloats, "mean");
    expect_within(invstd0, invstd, kFloats, "invstd");
    expect_within(*reference.running_mean, *a.running_mean, kFloats, "running mean");
    expect_within(*reference.running_var, *a.running_var, kFloats, "running variance");
    expect_zeros(counters);
    const at::Tensor again = batch_norm_act_again(a, {mean, invstd}, launcher);
    EXPECT_TRUE(at::equal(again, y)) << "made again";
    EXPECT_EQ(again.strides(), y.strides());
    expect_within(batch_norm_act_again_unfused(a, {mean, invstd}), y, tolerance, "made again");

    for (const bool other : {false, true}) {
      for (const bool keep : {false, true}) {
        BatchNormBackwardArguments b{.grad = d.grad,
                                     .input = a.input,
                                     .weight = a.weight,
                                     .bias = a.bias,
                                     .mean = mean,
                                     .invstd = invstd,
                                     .keep_masked = keep};
        if (other) b.other = d.other;
        if (relu) b.mask = residual ? ReluMask::kOfOutput : ReluMask::kOfInput;
        if (residual) b.output = y;
        const auto [dx, dw, db, masked] = batch_norm_act_backward(b, counters, launcher);
        if (a.keep_bits && residual) {
          BatchNormBackwardArguments of_bits = b;
          of_bits.mask = ReluMask::kOfBits;
          of_bits.output = bits;
          const auto by_bits = batch_norm_act_backward(of_bits, counters, launcher);
          EXPECT_TRUE(at::equal(std::get<0>(by_bits), dx)) << "by bits";
          if (of.type == c10::kFloat) {  // half is not known to libtorch's on the CPU
            const auto unfused = batch_norm_act_backward_unfused(of_bits);
            const auto expected = batch_norm_act_backward_unfused(b);
            EXPECT_TRUE(at::equal(std::get<0>(unfused), std::get<0>(expected))) << "unfused";
          }
        }
        const auto [dx0, dw0, db0, masked0] = batch_norm_act_backward_unfused(in_float(b));
        const double rounding = other || residual ? 2 * tolerance : tolerance;
        expect_within(dx0, dx, rounding, "gradient of x");
        EXPECT_EQ(dx.strides(), a.input.strides());
        if (affine) {
          expect_within(dw0, dw, 1e-4, "gradient of the weight");
          expect_within(db0, db, 1e-4, "gradient of the bias");
        }
        EXPECT_EQ(masked.defined(), keep);
        if (keep) expect_within(masked0, masked, tolerance, "masked gradient");
        expect_zeros(counters);
      }
    }
  }
}

void expect_added_batch_norms_as_unfused(const BatchNormCase& of, const Launcher& launcher,
                                         c10::Device device) {
  const Data d = make_data(of, device);
  const at::Tensor counters = make_counters(device);
  const double tolerance = tolerance_of(of.type);
  for (const bool affine : {true, false}) {
    BatchNormArguments shortcut = forward_of(d, affine, /*residual=*/false, /*relu=*/false);
    shortcut.input = d.residual + 5;
    if (affine) shortcut.weight = d.bias, shortcut.bias = d.weight;
    BatchNormArguments alone = shortcut;
    alone.running_mean = shortcut.running_mean->clone();
    alone.running_var = shortcut.running_var->clone();
    const auto [y_alone, mean_alone, invstd_alone, none] =
        batch_norm_act(alone, counters, launcher);
    const BatchNormStatistics known = batch_norm_statistics(shortcut, counters, launcher);
    EXPECT_TRUE(at::equal(known.mean, mean_alone));
    EXPECT_TRUE(at::equal(known.invstd, invstd_alone));
    EXPECT_TRUE(at::equal(*shortcut.running_mean, *alone.running_mean));
    EXPECT_TRUE(at::equal(*shortcut.running_var, *alone.running_var));
    const BatchNormStatistics unfused = batch_norm_statistics_unfused(in_float(shortcut));
    expect_within(unfused.mean, known.mean, 2e-5, "mean");
    expect_within(unfused.invstd, known.invstd, 2e-5, "invstd");

    BatchNormArguments a = forward_of(d, affine, /*residual=*/false, /*relu=*/true);
    a.residual = shortcut.input;
    a.residual_statistics = known;
    a.residual_weight = shortcut.weight;
    a.residual_bias = shortcut.bias;
    a.keep_bits = has_relu_bits(of.type, of.sizes[1]);
    BatchNormArguments one_by_one = in_float(a);
    one_by_one.residual = std::get<0>(batch_norm_act_unfused(in_float(shortcut)));
    one_by_one.residual_statistics = {};
    BatchNormArguments stand_in = a;
    const bool is_known_to_libtorch = of.type != c10::kHalf || device.is_cuda();
    if (!is_known_to_libtorch) stand_in = in_float(a);
    stand_in.running_mean = stand_in.running_var = c10::nullopt;
    const auto [y, mean, invstd, bits] = batch_norm_act(a, counters, launcher);
    const auto [y0, mean0, invstd0, bits0] = batch_norm_act_unfused(one_by_one);
    EXPECT_EQ(y.strides(), a.input.strides());
    EXPECT_EQ(y.scalar_type(), of.type);
    EXPECT_EQ(bits.defined(), a.keep_bits);
    expect_within(y0, y, tolerance, "y");
    const auto [y1, mean1, invstd1, bits1] = batch_norm_act_unfused(stand_in);
    EXPECT_EQ(y1.scalar_type(), stand_in.input.scalar_type());
    EXPECT_EQ(y1.strides(), stand_in.input.strides());
    expect_within(y1, y, 2 * tolerance, "by libtorch's operators");
    expect_within(mean0, mean, 2e-5, "mean");
    expect_within(invstd0, invstd, 2e-5, "invstd");
    expect_within(*one_by_one.running_var, *a.running_var, 2e-5, "running variance");
    expect_zeros(counters);
    EXPECT_TRUE(at::equal(batch_norm_act_again(a, {mean, invstd}, launcher), y)) << "made again";
    expect_within(batch_norm_act_again_unfused(a, {mean, invstd}), y, tolerance, "made again");
    if (!a.keep_bits) continue;
    BatchNormBackwardArguments b{.grad = d.grad,
                                 .input = a.input,
                                 .output = y,
                                 .mean = mean,
                                 .invstd = invstd,
                                 .mask = ReluMask::kOfOutput};
    const at::Tensor dx = std::get<0>(batch_norm_act_backward(b, counters, launcher));
    b.output = bits;
    b.mask = ReluMask::kOfBits;
    EXPECT_TRUE(at::equal(std::get<0>(batch_norm_act_backward(b, counters, launcher)), dx));
  }
}

std::vector<CrossEntropyCase> cross_entropy_cases() {
  return {{5, 10, c10::kFloat, c10::kFloat, true},
          {1, 1, c10::kFloat, c10::kFloat, true},
          {3, 1000, c10::kBFloat16, c10::kBFloat16, true},
          {2, 9000, c10::kBFloat16, c10::kBFloat16, false},
          {4, 77, c10::kHalf, c10::kFloat, true},
          {2, 5003, c10::kFloat, c10::kBFloat16, false}};
}

void expect_cross_entropy_as_unfused(const CrossEntropyCase& of, const Launcher& launcher,
                                     c10::Device device) {
  at::manual_seed(5);
  const at::Tensor logits = at::randn({of.rows, of.classes}).mul_(4).to(of.type).to(device);
  at::Tensor target = at::randint(of.classes, {of.rows}, at::kLong);
  if (of.rows > 2) target[1] = -100;
  const CrossEntropyArguments a{.logits = logits,
                                .target = target.to(device),
                                .loss_grad = at::full({}, 2.5F).to(device),
                                .mean = of.mean,
                                .grad_type = of.grad_type};
  const auto [loss, count, grad] = cross_entropy(a, launcher);
  const auto [loss0, count0, grad0] = cross_entropy_unfused(a);
  EXPECT_EQ(grad.scalar_type(), of.grad_type);
  expect_within(loss0, loss, 1e-5, "loss");
  EXPECT_EQ(count.item<float>(), count0.item<float>());
  expect_within(grad0, grad, tolerance_of(of.grad_type), "gradient");
  if (of.rows > 2) {
    EXPECT_EQ(grad[1].abs().max().item<float>(), 0) << "an ignored row";
  }
}

std::vector<EmbeddingGradientCase> embedding_gradient_cases() {
  using enum EmbeddingGradientCase::Words;
  return {{{4, 16}, 100, 768, c10::kBFloat16},      {{300}, 50, 64, c10::kBFloat16, kFew, 1},
          {{2, 129}, 33, 20, c10::kFloat, kOne},    {{31}, 40, 7, c10::kHalf, kFew, -1, c10::kInt},
          {{70}, 31, 130, c10::kFloat, kRandom, 3}, {{1}, 1, 1, c10::kFloat},
          {{64}, 2, 4, c10::kBFloat16, kOne, 1}};
}

void expect_embedding_gradient_as_unfused(const EmbeddingGradientCase& of, const Launcher& launcher,
                                          c10::Device device) {
  using Words = EmbeddingGradientCase::Words;
  at::manual_seed(15);
  at::Tensor words = at::randint(of.vocabulary, of.sizes, at::kLong);
  if (of.words == Words::kFew) words.remainder_(3);
  if (of.words == Words::kOne) words.fill_(of.vocabulary - 1);
  std::vector<int64_t> sizes = of.sizes;
  sizes.push_back(of.features);
  const EmbeddingGradientArguments a{
      .grad = at::randn(sizes).to(device),
      .words = words.to(of.of_words).to(device),
      .other = at::randn({of.vocabulary, of.features}).to(of.type).to(device),
      .padding_idx = of.padding_idx};
  const at::Tensor result = embedding_gradient(a, launcher);
  const at::Tensor expected = embedding_gradient_unfused(
      {a.grad.cpu().to(at::kDouble), a.words.cpu(), a.other.cpu().to(at::kDouble), a.padding_idx});
  EXPECT_EQ(result.scalar_type(), at::kFloat);
  EXPECT_EQ(result.strides(), a.other.strides());
  expect_within(expected, result, 1e-5, "gradient");
  expect_within(embedding_gradient_unfused(a), result, 2e-5, "by libtorch's");
  at::Tensor is_there = at::zeros({of.vocabulary}, at::kBool);
  is_there.index_fill_(0, words.flatten(), true);
  if (of.padding_idx >= 0) is_there[of.padding_idx] = false;
  const at::Tensor others = is_there.logical_not().nonzero().flatten().to(device);
  EXPECT_TRUE(
      at::equal(result.index_select(0, others), a.other.to(at::kFloat).index_select(0, others)));
  EXPECT_TRUE(at::equal(result, embedding_gradient(a, launcher))) << "other bits";
}

std::vector<FilterGradientCase> filter_gradient_cases() {
  using Case = FilterGradientCase;
  using enum Case::Layout;
  const auto filters = [](std::vector<int64_t> size, int64_t stride, int64_t padding,
                          bool bias = false) {
    const std::vector<int64_t> strides = at::empty(size).strides().vec();
    return FilterGradient{size, strides, {stride, stride}, {padding, padding}, {1, 1}, bias};
  };
  FilterGradient in_channels_last = filters({64, 3, 3, 3}, 1, 1);
  in_channels_last.strides = {27, 1, 9, 3};
  FilterGradient uneven = filters({100, 1, 3, 2}, 1, 0, true);
  uneven.stride = {1, 2};
  uneven.padding = {2, 1};
  uneven.dilation = {2, 3};
  return {{{5, 3, 9, 7}, filters({32, 3, 3, 3}, 1, 1)},
          {{4, 1, 12, 11}, filters({32, 1, 5, 5}, 2, 2, true), kContiguous},
          {{2, 3, 8, 8}, in_channels_last, kChannelsLast, kChannelsLast, c10::kBFloat16},
          {{3, 4, 7, 6}, filters({20, 4, 5, 5}, 1, 0, true), kPart, kPart, c10::kHalf},
          {{1, 2, 1, 1}, filters({1, 2, 1, 1}, 1, 0, true)},
          {{2, 1, 6, 6}, uneven, kContiguous, kChannelsLast},
          {{2, 3, 9, 9}, filters({7, 3, 3, 3}, 2, 1), kChannelsLast, kContiguous, c10::kBFloat16},
          {{7, 2, 9, 8}, filters({16, 2, 8, 7}, 1, 1)},
          {{40, 1, 7, 7}, filters({16, 1, 3, 3}, 1, 0)}};
}

void expect_filter_gradient_as_unfused(const FilterGradientCase& of, const Launcher& launcher,
                                       c10::Device device) {
  using Layout = FilterGradientCase::Layout;
  at::manual_seed(7);
  const auto draw = [&](std::vector<int64_t> size, Layout layout) {
    if (layout == Layout::kPart) {
      size[1] += 1;
      size[3] += 2;
    }
    const at::Tensor all = at::randn(size).to(of.type).to(device);
    if (layout == Layout::kPart) return all.slice(1, 1).slice(3, 1, size[3] - 1);
    return layout == Layout::kChannelsLast ? all.contiguous(at::MemoryFormat::ChannelsLast) : all;
  };
  const FilterGradient& f = of.of;
  const auto places = [&](size_t i) {
    return (of.image[2 + i] + 2 * f.padding[i] - f.dilation[i] * (f.size[2 + i] - 1) - 1) /
               f.stride[i] +
           1;
  };
  const at::Tensor image = draw(of.image, of.of_image);
  const at::Tensor grad = draw({of.image[0], f.size[0], places(0), places(1)}, of.of_grad);
  const auto [weight, bias] = filter_gradient(grad, image, f, launcher);
  const auto in_double = [](const at::Tensor& t) { return t.cpu().to(at::kDouble).contiguous(); };
  const auto [weight0, bias0] = filter_gradient_unfused(in_double(grad), in_double(image), f);
  EXPECT_EQ(weight.strides(), at::IntArrayRef(f.strides));
  EXPECT_EQ(weight.scalar_type(), of.type);
  expect_within(weight0, weight, tolerance_of(of.type), "gradient of the filters");
  EXPECT_EQ(bias.defined(), f.bias);
  if (f.bias) expect_within(bias0, bias, tolerance_of(of.type), "gradient of the bias");
  const auto again = filter_gradient(grad, image, f, launcher);
  EXPECT_TRUE(at::equal(weight, std::get<0>(again))) << "other bits";
}

std::vector<MaxPoolCase> max_pool_cases() {
  return {{{2, 8, 7, 9}, {{3, 3}, {2, 2}, {1, 1}}, c10::kBFloat16},
          {{1, 3, 6, 6}, {{2, 2}, {2, 2}, {0, 0}}, c10::kFloat},
          {{2, 4, 5, 8}, {{3, 2}, {1, 3}, {1, 0}}, c10::kFloat},
          {{1, 16, 9, 9}, {{2, 2}, {4, 3}, {1, 1}}, c10::kHalf},
          {{1, 1, 1, 1}, {{1, 1}, {1, 1}, {0, 0}}, c10::kFloat}};
}

void expect_max_pool_as_unfused(const MaxPoolCase& of, const Launcher& launcher,
                                c10::Device device) {
  at::manual_seed(6);
  // Few values, so that maxima are shared: the first of them counts.
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randint(-4, 4, sizes)
        .to(of.type)
        .contiguous(at::MemoryFormat::ChannelsLast)
        .to(device);
  };
  const at::Tensor x = draw(of.sizes);
  const auto [y, places] = max_pool(x, of.window, launcher);
  const auto [y0, places0] = max_pool_unfused(x.to(at::kFloat), of.window);
  EXPECT_TRUE(at::equal(y.to(at::kFloat), y0));
  EXPECT_TRUE(at::equal(places, places0));
  EXPECT_EQ(y.strides(), y0.strides());
  const at::Tensor grad = draw(y.sizes());
  const at::Tensor dx = max_pool_backward(grad, places, x.sizes(), of.window, launcher);
  const at::Tensor dx0 =
      max_pool_backward_unfused(grad.to(at::kFloat), places, x.sizes(), of.window);
  EXPECT_TRUE(at::equal(dx.to(at::kFloat), dx0));
  EXPECT_EQ(dx.strides(), x.strides());
}

std::vector<LayerNormCase> layer_norm_cases() {
  return {{{3, 5, 64}, c10::kFloat, c10::kBFloat16},   {{37, 768}, c10::kFloat, c10::kBFloat16},
          {{2, 7}, c10::kFloat, c10::kFloat},          {{1, 2}, c10::kFloat, c10::kHalf},
          {{19, 130}, c10::kBFloat16, c10::kBFloat16}, {{5, 1024}, c10::kFloat, c10::kBFloat16}};
}

namespace {

// What is there of the two, added up over the rows.
at::Tensor sum_over_rows(const at::Tensor& copy, const at::Tensor& result) {
  const at::Tensor summed = copy.defined() ? copy : result;
  return summed.reshape({-1, summed.size(-1)}).to(at::kDouble).sum(0);
}

// With the sums over the rows, which change nothing else.
void expect_sum_of_layer_norm_as_unfused(LayerNormBackwardArguments of, const Launcher& launcher) {
  const auto [dx0, dw0, db0, copy0, none] = layer_norm_backward(of, launcher);
  EXPECT_FALSE(none.defined());
  LayerNormBackwardArguments stand_in = of;
  stand_in.grad = of.grad.to(at::kFloat);
  stand_in.input = of.input.to(at::kFloat);
  if (of.other) stand_in.other = of.other->to(at::kFloat);
  for (const auto type : {c10::kFloat, of.grad.scalar_type()}) {
    for (const bool keep_rows : {false, true}) {
      of.sum = stand_in.sum = type;
      of.keep_rows = stand_in.keep_rows = keep_rows;
      const auto as_asked = [&](const at::Tensor& sum) {
        return keep_rows ? sum.view({1, -1}) : sum;
      };
      const auto [dx, dw, db, copy, sum] = layer_norm_backward(of, launcher);
      EXPECT_TRUE(at::equal(dx, dx0) && at::equal(dw, dw0) && at::equal(db, db0));
      EXPECT_TRUE(!copy.defined() || at::equal(copy, copy0));
      EXPECT_EQ(sum.scalar_type(), type);
      expect_within(as_asked(sum_over_rows(copy, dx)), sum, tolerance_of(type), "sum over rows");
      EXPECT_TRUE(at::equal(sum, std::get<4>(layer_norm_backward(of, launcher)))) << "other bits";
      const auto [dx1, dw1, db1, copy1, sum1] = layer_norm_backward_unfused(stand_in);
      EXPECT_EQ(sum1.scalar_type(), type);
      expect_within(as_asked(sum_over_rows(copy1, dx1)), sum1, tolerance_of(type), "by libtorch's");
    }
  }
}

}  // namespace

void expect_layer_norm_as_unfused(const LayerNormCase& of, const Launcher& launcher,
                                  c10::Device device) {
  at::manual_seed(8);
  const int64_t columns = of.sizes.back();
  const auto draw = [&](c10::ScalarType type, double mean = 0) {
    return at::randn(of.sizes).add_(mean).to(type).to(device);
  };
  const auto vector = [&] { return at::rand({columns}).add_(0.5).to(device); };
  const at::Tensor x = draw(of.type, 3), weight = vector(), bias = vector();
  const at::Tensor residual = draw(of.layers), grad = draw(of.layers), other = draw(of.type);
  const auto in_full = [](at::Tensor t) { return t.to(at::kFloat); };
  const std::vector<int64_t> size = {x.numel() / columns, columns};
  for (const bool all : {true, false}) {
    LayerNormArguments a{.input = x, .epsilon = 1e-3, .type = of.layers, .size = size};
    LayerNormArguments reference{
        .input = in_full(x), .epsilon = 1e-3, .type = c10::kFloat, .size = size};
    if (all) {
      a.weight = reference.weight = weight;
      a.bias = reference.bias = bias;
      a.residual = residual;
      reference.residual = in_full(residual);
    }
    const auto [y, sum, mean, rstd] = layer_norm(a, launcher);
    const auto [y0, sum0, mean0, rstd0] = layer_norm_unfused(reference);
    const double rounding = std::max(tolerance_of(of.type), tolerance_of(of.layers));
    EXPECT_EQ(y.scalar_type(), of.layers);
    EXPECT_EQ(sum.defined(), all);
    expect_within(y0, y, 2 * rounding, "y");
    if (all) expect_within(sum0, sum, tolerance_of(of.type), "sum");
    expect_within(mean0, mean, tolerance_of(of.type), "mean");
    expect_within(rstd0, rstd, 2 * tolerance_of(of.type), "rstd");

    LayerNormBackwardArguments b{
        .grad = grad.view(size), .input = all ? sum : x, .mean = mean, .rstd = rstd};
    if (all) {
      b.weight = weight;
      b.other = other;
      b.copy = of.layers;
    }
    LayerNormBackwardArguments b0 = b;
    b0.grad = in_full(b.grad);
    b0.input = in_full(b.input);
    if (all) b0.other = in_full(other);
    const auto [dx, dw, db, copy, none] = layer_norm_backward(b, launcher);
    const auto [dx0, dw0, db0, copy0, none0] = layer_norm_backward_unfused(b0);
    EXPECT_EQ(dx.scalar_type(), of.type);
    expect_within(dx0, dx, tolerance_of(of.type), "gradient of s");
    EXPECT_EQ(copy.defined(), all);
    if (fits_layer_norm_sum(columns)) expect_sum_of_layer_norm_as_unfused(b, launcher);
    if (!all) continue;
    expect_within(dw0, dw, 1e-4, "gradient of the weight");
    expect_within(db0, db, 1e-4, "gradient of the bias");
    EXPECT_EQ(copy.scalar_type(), of.layers);
    expect_within(dx0, copy, tolerance_of(of.layers), "copy");
  }
}

void expect_column_sum_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                  c10::ScalarType of_sums, const Launcher& launcher,
                                  c10::Device device) {
  at::manual_seed(9);
  const at::Tensor x = at::randn(sizes).to(type).to(device);
  const at::Tensor counters = make_counters(device);
  for (const bool keep_rows : {false, true}) {
    const at::Tensor sums = column_sum(x, counters, keep_rows, of_sums, launcher);
    EXPECT_EQ(sums.scalar_type(), of_sums);
    expect_within(column_sum_unfused(x, keep_rows, at::kFloat), sums, tolerance_of(of_sums), "sum");
    expect_zeros(counters);
  }
}

void expect_bias_relu_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                 c10::ScalarType of_bias, const Launcher& launcher,
                                 c10::Device device) {
  at::manual_seed(10);
  const auto draw = [&] {
    return at::randn(sizes).to(type).contiguous(at::MemoryFormat::ChannelsLast).to(device);
  };
  const at::Tensor x = draw(), grad = draw(), counters = make_counters(device);
  const at::Tensor bias = at::randn({sizes[1]}).to(of_bias).to(device);
  const at::Tensor y = bias_relu(x, bias, launcher);
  EXPECT_EQ(y.strides(), x.strides());
  expect_within(bias_relu_unfused(x.to(at::kFloat), bias), y, tolerance_of(type), "y");
  const auto [dx, db] = bias_relu_backward(grad, y, counters, of_bias, launcher);
  const auto [dx0, db0] =
      bias_relu_backward_unfused(grad.to(at::kFloat), y.to(at::kFloat), at::kFloat);
  EXPECT_TRUE(at::equal(dx.to(at::kFloat), dx0));
  EXPECT_EQ(db.scalar_type(), of_bias);
  expect_within(db0, db, tolerance_of(of_bias), "gradient of the bias");
  expect_zeros(counters);
}

namespace {

// All numbers of 16 bits; floats with every third upper half, and the lower halves around which
// rounding to 16 bits changes.
at::Tensor all_kinds_of_numbers(c10::ScalarType type) {
  constexpr int64_t kHalves = int64_t{1} << 16;
  if (c10::elementSize(type) == 2) return at::arange(kHalves).to(at::kShort).view(type);
  const at::Tensor upper = at::arange(0, kHalves, 3, at::kLong).bitwise_left_shift(16);
  const at::Tensor lower =
      at::tensor(std::vector<int64_t>{0, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff});
  return (upper.unsqueeze(1) + lower).flatten().to(at::kInt).view(type);
}

at::Tensor bits_of(const at::Tensor& tensor) {
  return tensor.contiguous().view(tensor.element_size() == 2 ? at::kShort : at::kInt);
}

void expect_same_casts(const CastArguments& of, const Launcher& launcher) {
  ASSERT_TRUE(fits_cast(of));
  const std::vector<at::Tensor> results = cast(of, launcher);
  const std::vector<at::Tensor> expected = cast_unfused(of);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(c10::str(i, ": ", expected[i].sizes()));
    ASSERT_EQ(results[i].sizes(), expected[i].sizes());
    EXPECT_EQ(results[i].strides(), expected[i].strides());
    EXPECT_EQ(results[i].scalar_type(), of.type);
    const at::Tensor is_number = expected[i].isnan().logical_not();
    EXPECT_TRUE(at::equal(results[i].isnan().logical_not(), is_number));
    EXPECT_TRUE(at::equal(bits_of(results[i]).masked_select(is_number),
                          bits_of(expected[i]).masked_select(is_number)));
  }
}

}  // namespace

std::vector<ConcatSumCase> concat_sum_cases() {
  using enum ConcatSumCase::Layout;
  return {{{4, 25}, {64, 64, 64}, c10::kBFloat16, c10::kBFloat16},
          {{300}, {24, 8, 40}, c10::kBFloat16, c10::kFloat, kColumns},
          {{2, 3, 7}, {16, 8}, c10::kHalf, c10::kHalf, kOddColumns},
          {{3, 5}, {4, 12, 4}, c10::kFloat, c10::kFloat, kColumns},
          {{77}, {3, 1, 7}, c10::kFloat, c10::kBFloat16},
          {{2, 9}, {12, 20}, c10::kBFloat16, c10::kFloat},
          {{1}, {5, 6}, c10::kHalf, c10::kFloat},
          {{1, 1}, {8, 8}, c10::kBFloat16, c10::kBFloat16, kColumns},
          {{6, 5}, {1}, c10::kFloat, c10::kFloat},
          {{2, 33}, {8, 8, 8, 8, 8, 8, 8, 8}, c10::kBFloat16, c10::kFloat},
          {{3, 11}, {8, 16}, c10::kBFloat16, c10::kFloat, kExpanded}};
}

void expect_concat_sum_as_unfused(const ConcatSumCase& of, const Launcher& launcher,
                                  c10::Device device) {
  using Layout = ConcatSumCase::Layout;
  at::manual_seed(14);
  const auto draw = [&](int64_t columns) {
    std::vector<int64_t> sizes = of.rows;
    sizes.push_back(columns);
    if (of.layout == Layout::kExpanded) {
      return at::randn({columns}).to(of.type).to(device).expand(sizes);
    }
    const int64_t before = of.layout == Layout::kColumns ? 8 : 3;
    if (of.layout != Layout::kDense) sizes.back() += 2 * before;
    const at::Tensor all = at::randn(sizes).to(of.type).to(device);
    return of.layout == Layout::kDense ? all : all.narrow(-1, before, columns);
  };
  std::vector<at::Tensor> parts;
  for (const int64_t columns : of.columns) parts.push_back(draw(columns));
  const at::Tensor counters = make_counters(device);
  for (const bool keep_rows : {false, true}) {
    const auto [all, sums] = concat_sum(parts, counters, keep_rows, of.of_sums, launcher);
    const auto [all0, sums0] = concat_sum_unfused(parts, keep_rows, of.of_sums);
    EXPECT_EQ(all.sizes(), all0.sizes());
    EXPECT_EQ(all.strides(), all0.strides());
    EXPECT_TRUE(at::equal(bits_of(all), bits_of(all0)));
    EXPECT_EQ(sums.scalar_type(), of.of_sums);
    EXPECT_EQ(sums0.scalar_type(), of.of_sums);
    const at::Tensor expected = all0.view({-1, all0.size(-1)}).to(at::kDouble).sum(0, keep_rows);
    expect_within(expected, sums, tolerance_of(of.of_sums), "sums");
    expect_within(expected, sums0, tolerance_of(of.of_sums), "sums by libtorch's");
    expect_zeros(counters);
    const auto again = concat_sum(parts, counters, keep_rows, of.of_sums, launcher);
    EXPECT_TRUE(at::equal(sums, std::get<1>(again))) << "other bits";
  }
  if (of.layout == Layout::kExpanded) return;
  parts[0].select(-1, 0).fill_(std::numeric_limits<float>::quiet_NaN());
  parts.back().select(-1, -1).flatten()[0].fill_(-std::numeric_limits<float>::infinity());
  const auto [all, sums] = concat_sum(parts, counters, false, of.of_sums, launcher);
  EXPECT_TRUE(at::equal(bits_of(all), bits_of(at::cat(parts, -1))));
  EXPECT_TRUE(sums[0].isnan().item<bool>());
  EXPECT_EQ(sums.isfinite().sum().item<int64_t>(), sums.numel() - (sums.numel() > 1 ? 2 : 1));
}

void expect_cast_as_unfused(c10::ScalarType from, c10::ScalarType to, const Launcher& launcher,
                            c10::Device device) {
  at::manual_seed(12);
  const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(from).to(device); };
  CastArguments all{
      .tensors = {all_kinds_of_numbers(from).to(device),
                  draw({2, 5, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast), draw({7, 31}).t(),
                  draw({}), draw({3, 0, 2}), draw({1030}).narrow(0, 1, 1029)},  // not aligned
      .type = to};
  for (int64_t length : {1023, 1024, 1025, 2048, 5000}) all.tensors.push_back(draw({length}));
  for (int64_t i = 0; i < 150; ++i) all.tensors.push_back(draw({i % 37}));
  expect_same_casts(all, launcher);

  const CastArguments together{.tensors = {draw({3, 5}), draw({1, 5}), draw({0, 5}), draw({4, 7}),
                                           draw({1025}), draw({7}), draw({2048})},
                               .type = to,
                               .parts = {3, 1, 3}};
  expect_same_casts(together, launcher);
  const auto& t = together.tensors;
  const std::vector<at::Tensor> results = cast(together, launcher);
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(at::equal(results[0], at::cat({t[0], t[1], t[2]}).to(to)));
  EXPECT_TRUE(at::equal(results[1], t[3].to(to)));
  EXPECT_TRUE(at::equal(results[2], at::cat({t[4], t[5], t[6]}).to(to)));
}

void expect_large_cast_as_unfused(c10::ScalarType from, c10::ScalarType to,
                                  const Launcher& launcher, c10::Device device) {
  at::manual_seed(13);
  const at::Tensor large = at::randn({(int64_t{1} << 22) + 11}).to(from).to(device);
  expect_same_casts(
      {.tensors = {large, large.narrow(0, 3, 5000), large.narrow(0, 0, 4095)}, .type = to},
      launcher);
}

}  // namespace tensorpack::cuda
