// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tensorpack/cuda/kernels/batch_norm_pool.h"
#include "tensorpack/cuda/kernels/layer_norm.h"
#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/kernel_expectations.h"

namespace tensorpack::cuda {
namespace {

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
                                     .keeps = keep ? NormKeeps::kMasked : NormKeeps::kNothing};
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
        if (relu && !residual) {
          b.keeps = NormKeeps::kOutput;
          const auto with_output = batch_norm_act_backward(b, counters, launcher);
          EXPECT_TRUE(at::equal(std::get<3>(with_output), y)) << "made again on the way";
          EXPECT_TRUE(at::equal(std::get<0>(with_output), dx));
          EXPECT_TRUE(at::equal(std::get<1>(with_output), dw));
          const auto unfused = batch_norm_act_backward_unfused(in_float(b));
          expect_within(std::get<3>(unfused), y, tolerance, "made again by libtorch's");
        }
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

void expect_batch_norm_pool_as_unfused(const MaxPoolCase& of, const Launcher& launcher,
                                       c10::Device device) {
  const Data d = make_data({of.sizes, of.type}, device);
  const at::Tensor counters = make_counters(device);
  const double tolerance = tolerance_of(of.type);
  for (const bool affine : {true, false}) {
    BatchNormArguments a = forward_of(d, affine, /*residual=*/false, /*relu=*/true);
    if (affine) {
      a.weight = d.weight.clone();
      a.weight->narrow(0, 0, (of.sizes[1] + 1) / 2).neg_();
      if (of.sizes[1] > 2) a.weight->narrow(0, 1, 1).zero_();
    }
    const BatchNormArguments reference = in_float(a);
    BatchNormArguments one_by_one = a;
    one_by_one.running_mean = a.running_mean->clone();
    one_by_one.running_var = a.running_var->clone();
    const BatchNormPoolResults found = batch_norm_pool(a, of.window, counters, launcher);
    const BatchNormPoolResults expected = batch_norm_pool_unfused(reference, of.window);
    const auto [y, mean, invstd, bits] = batch_norm_act(one_by_one, counters, launcher);
    EXPECT_TRUE(at::equal(found.y, std::get<0>(max_pool(y, of.window, launcher))))
        << "what both give, one after the other";
    EXPECT_EQ(found.y.strides(), expected.y.strides());
    expect_within(expected.y, found.y, tolerance, "y");
    EXPECT_TRUE(at::equal(found.statistics.mean, mean));
    EXPECT_TRUE(at::equal(found.statistics.invstd, invstd));
    expect_within(*reference.running_var, *a.running_var, 2e-5, "running variance");
    EXPECT_EQ(found.places.strides(), found.y.strides());
    EXPECT_TRUE(at::equal(found.places.eq(kNowhere), found.y.le(0)));
    // Its place is where the input lies that was taken.
    const at::Tensor indices = indices_of(found.places, of.sizes[3], of.window);
    const at::Tensor at_places =
        a.input.reshape({of.sizes[0], of.sizes[1], -1})
            .gather(2, indices.masked_fill(found.places.eq(kNowhere), 0).flatten(2))
            .view(found.y.sizes());
    const at::Tensor is_somewhere = found.places.ne(kNowhere);
    EXPECT_TRUE(
        at::equal(at_places.masked_select(is_somewhere), found.taken.masked_select(is_somewhere)));
    expect_zeros(counters);

    const at::Tensor grad = at::randn(found.y.sizes())
                                .to(of.type)
                                .contiguous(at::MemoryFormat::ChannelsLast)
                                .to(device);
    for (const bool other : {false, true}) {
      BatchNormPoolBackwardArguments b{.grad = grad,
                                       .input = a.input,
                                       .taken = found.taken,
                                       .places = found.places,
                                       .weight = a.weight,
                                       .bias = a.bias,
                                       .statistics = found.statistics};
      if (other) b.other = grad.flip({2}).contiguous(at::MemoryFormat::ChannelsLast);
      const auto [dx, dw, db] = batch_norm_pool_backward(b, of.window, counters, launcher);
      BatchNormPoolBackwardArguments in_floats = b;
      in_floats.grad = in_float(b.grad);
      if (other) in_floats.other = in_float(*b.other);
      in_floats.input = in_float(b.input);
      const auto [dx0, dw0, db0] = batch_norm_pool_backward_unfused(in_floats, of.window);
      expect_within(dx0, dx, other ? 2 * tolerance : tolerance, "gradient of x");
      EXPECT_EQ(dx.strides(), a.input.strides());
      if (affine) {
        expect_within(dw0, dw, other ? tolerance : 1e-4, "gradient of the weight");
        expect_within(db0, db, other ? tolerance : 1e-4, "gradient of the bias");
      }
      expect_zeros(counters);
      const auto again = batch_norm_pool_backward(b, of.window, counters, launcher);
      EXPECT_TRUE(at::equal(std::get<0>(again), dx)) << "other bits";
    }
  }
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

}  // namespace tensorpack::cuda
