// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/onnx.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/export/exported_program.h"
#include "tensorpack/export/passes.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/models/attention.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv1d.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/conv2d_transpose.h"
#include "tensorpack/models/embedding.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/nonlinear.h"
#include "tensorpack/models/norm.h"
#include "tensorpack/models/pooling.h"
#include "tensorpack/models/recurrent.h"
#include "tensorpack/models/upsample.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tests/export/onnx_runtime.h"

namespace tensorpack {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

using Function = Tensor (*)(const Tensor&);

const TensorSpec kImages{"x", {-1, 4, 8, 6}};

PredictConfig config_of(Function function, TensorSpec input = kImages) {
  return {
      .inputs = {std::move(input)},
      .tower_func = [function](const Tensor& x) { named("y", function(x)); },
      .output_names = {"y"},
      .graph = {.seed = 1},
  };
}

// Each on a batch of 3 images of 4 channels, 8 x 6.
const std::vector<std::pair<const char*, Function>>& functions() {
  static const std::vector<std::pair<const char*, Function>> list = {
      {"add", [](const Tensor& x) { return at::add(x, x.exp(), 0.5) + 2; }},
      {"subtract", [](const Tensor& x) { return at::rsub(x, 3, 2) - at::sub(x, x.cos(), 2); }},
      {"divide", [](const Tensor& x) { return (x / 3 + 1) / (x.sin() + 2); }},
      {"power", [](const Tensor& x) { return x.pow(3) + x.square() + (x + 1).pow(x); }},
      {"roots", [](const Tensor& x) { return (x + 1).rsqrt() + x.sqrt() + (x + 1).reciprocal(); }},
      {"logarithm", [](const Tensor& x) { return (x + 1).log() + at::erf(x) + x.neg().abs(); }},
      {"logarithms", [](const Tensor& x) { return (x + 1).log2() + (x + 1).log10(); }},
      {"angles",
       [](const Tensor& x) {
         const Tensor half = x / 2;
         return half.tan() + half.asin() + half.acos() + half.atan();
       }},
      {"hyperbolas",
       [](const Tensor& x) {
         const Tensor half = x / 2;
         return half.sinh() + half.cosh() + half.asinh() + half.atanh() + (x + 2).acosh();
       }},
      {"rounding", [](const Tensor& x) { return (3 * x).floor() + (3 * x).ceil() + x.sign(); }},
      {"relu", [](const Tensor& x) { return (x - 0.5).relu_() + at::leaky_relu(x - 0.5, 0.1); }},
      {"elu", [](const Tensor& x) { return at::elu(x - 0.5, 0.7) + at::selu(x - 0.5); }},
      {"gelu", [](const Tensor& x) { return at::gelu(x - 0.5) + at::gelu(x - 0.5, "tanh"); }},
      {"swish", [](const Tensor& x) { return at::silu(x - 0.5) + at::mish(x) + at::hardswish(x); }},
      {"soft", [](const Tensor& x) { return at::softplus(x, 2) + at::log_sigmoid(x - 0.5); }},
      {"hard", [](const Tensor& x) { return at::hardsigmoid(x - 3) + at::relu6(9 * x - 1); }},
      {"clamp",
       [](const Tensor& x) { return x.clamp(0.2, 0.8) + x.clamp_min(0.5) + x.clamp_max(0.5); }},
      {"prelu", [](const Tensor& x) { return PReLU("prelu", x - 0.5); }},
      {"comparison",
       [](const Tensor& x) { return at::where((x > 0.5).logical_and(x <= 0.9), x, -x); }},
      {"masks",
       [](const Tensor& x) { return x.masked_fill(x.lt(0.3), -1).masked_fill(x.ne(x), 2); }},
      {"extremes", [](const Tensor& x) { return at::maximum(x, 1 - x) + at::minimum(x, x * x); }},
      {"casts", [](const Tensor& x) { return (10 * x).to(at::kLong).to(at::kFloat) + (x > 0.5); }},
      {"integers",
       [](const Tensor& x) { return ((10 * x).to(at::kLong) + 3 == 7).to(at::kFloat); }},
      {"addcmul", [](const Tensor& x) { return at::addcmul(x, x, x, 0.3); }},
      {"softmax", [](const Tensor& x) { return x.softmax(1) + x.log_softmax(-1); }},
      {"sums",
       [](const Tensor& x) {
         return x.sum({2, 3}) + x.mean({2, 3}) + x.amax({2, 3});
       }},
      {"kept sums", [](const Tensor& x) { return x - x.mean({1}, true) + x.sum() + x.mean(); }},
      {"argmax",
       [](const Tensor& x) { return x.argmax(1).to(at::kFloat) + std::get<0>(x.max(1)); }},
      {"max with place", [](const Tensor& x) { return std::get<1>(x.min(2)).to(at::kFloat); }},
      {"top",
       [](const Tensor& x) { return std::get<0>(x.topk(3, -1)) + std::get<1>(x.topk(3, -1)); }},
      {"reshape",
       [](const Tensor& x) {
         return x.reshape({x.size(0) * 4, 48}).t().exp();
       }},
      {"reshape twice",
       [](const Tensor& x) {
         return x.view({2, x.size(0), 2, -1}).permute({1, 0, 3, 2});
       }},
      {"squeeze",
       [](const Tensor& x) { return x.unsqueeze(1).squeeze(1).unsqueeze(-1).squeeze(); }},
      {"slices", [](const Tensor& x) { return x.slice(3, 1, 6, 2) + x.select(3, 2).unsqueeze(3); }},
      {"slice to the batch",
       [](const Tensor& x) { return x.flatten().narrow(0, 1, x.size(0) + 3); }},
      {"split",
       [](const Tensor& x) {
         return x.split(3, 2)[2].sum(2) + x.chunk(2, 1)[0].sum({1, 2}).unsqueeze(1);
       }},
      {"unbind",
       [](const Tensor& x) {
         return at::stack({x.unbind(1)[3], x.unbind(1)[0]}, 1);
       }},
      {"cat",
       [](const Tensor& x) {
         return at::cat({x, x.flip({2}), at::zeros_like(x)}, 1);
       }},
      {"expand",
       [](const Tensor& x) {
         return x.sum({1}, true).expand({x.size(0), 5, 8, 6});
       }},
      {"expand to the batch",
       [](const Tensor& x) {
         return at::ones({1, 4}).expand({x.size(0), 4}) * x.select(3, 0).select(2, 0);
       }},
      {"repeat",
       [](const Tensor& x) {
         return x.repeat({2, 1, 1, 1, 2});
       }},
      {"numbers",
       [](const Tensor& x) {
         return x / x.size(0) + at::full({x.size(0), 1, 1, 1}, 2.5);
       }},
      {"range",
       [](const Tensor& x) {
         return x + at::arange(x.size(0)).view({-1, 1, 1, 1});
       }},
      {"triangle", [](const Tensor& x) { return x.tril() + x.triu(1); }},
      {"pad",
       [](const Tensor& x) {
         return at::constant_pad_nd(x, {1, 2, 0, 3}, 0.5) + 1;
       }},
      {"reflect",
       [](const Tensor& x) {
         return at::reflection_pad2d(x, {1, 2, 0, 3}) + at::replication_pad2d(x, {1, 2, 0, 3});
       }},
      {"gather",
       [](const Tensor& x) {
         return x.gather(1, at::zeros({x.size(0), 2, 8, 6}, at::kLong));
       }},
      {"index", [](const Tensor& x) { return x.index_select(1, at::arange(3)).mul(2); }},
      {"fill", [](const Tensor& x) { return at::empty_like(x).fill_(3).add_(x).mul_(2); }},
      {"product", [](const Tensor& x) { return x.matmul(x.transpose(2, 3)); }},
      {"added product",
       [](const Tensor& x) {
         return at::baddbmm(x.select(1, 0), x.select(1, 1).bmm(x.select(1, 2).transpose(1, 2)),
                            x.select(1, 3), 0.5, 2);
       }},
      {"convolution",
       [](const Tensor& x) {
         return Conv2D("conv", x, {.filters = 6, .kernel_size = 3, .strides = 2});
       }},
      {"transposed",
       [](const Tensor& x) {
         return Conv2DTranspose("conv", x, {.filters = 6, .kernel_size = 3, .strides = 2});
       }},
      {"groups",
       [](const Tensor& x) {
         return Conv2D("conv", x, {.filters = 6, .kernel_size = 3, .groups = 2});
       }},
      {"sequence",
       [](const Tensor& x) {
         return Conv1D("conv", x.flatten(2), {.filters = 6, .kernel_size = 3});
       }},
      {"pooling",
       [](const Tensor& x) { return MaxPooling("max", x, 2) + AvgPooling("avg", x, 2); }},
      {"padded pooling",
       [](const Tensor& x) { return at::max_pool2d(x, 3, 2, 1) + at::avg_pool2d(x, 3, 2, 1); }},
      {"adaptive pooling",
       [](const Tensor& x) {
         return at::adaptive_avg_pool2d(x, {4, 2}) +
                std::get<0>(at::adaptive_max_pool2d(x, {4, 2}));
       }},
      {"adaptive pooling with uneven windows",
       [](const Tensor& x) {
         return at::adaptive_avg_pool2d(x, {3, 4}) +
                std::get<0>(at::adaptive_max_pool2d(x, {3, 4}));
       }},
      {"adaptive pooling to more than there is",
       [](const Tensor& x) {
         return at::adaptive_avg_pool2d(x, {8, 9});
       }},
      {"cumulative sums",
       [](const Tensor& x) { return x.cumsum(-1) + (4 * x).to(at::kInt).cumsum(1) + x.cumsum(0); }},
      {"batch norm", [](const Tensor& x) { return BatchNorm("bn", x); }},
      {"layer norm", [](const Tensor& x) { return LayerNorm("ln", x); }},
      {"group norm", [](const Tensor& x) { return GroupNorm("gn", x, {.groups = 2}); }},
      {"instance norm", [](const Tensor& x) { return InstanceNorm("in", x); }},
      {"upsampling", [](const Tensor& x) { return FixedUnPooling("up", x, 2); }},
      {"bilinear",
       [](const Tensor& x) {
         return at::upsample_bilinear2d(x, {16, 12}, false) +
                at::upsample_bilinear2d(x, {16, 12}, true);
       }},
      {"lstm",
       [](const Tensor& x) {
         return LSTM("lstm", x.flatten(2), {.units = 5, .batch_first = true}).output;
       }},
      {"gru",
       [](const Tensor& x) {
         return GRU("gru", x.flatten(2), {.units = 5, .batch_first = true}).output;
       }},
      {"attention",
       [](const Tensor& x) {
         return MultiHeadAttention("mha", x.flatten(2), {.heads = 4, .causal = true});
       }},
  };
  return list;
}

TEST(OnnxTest, OnnxRuntimeAgreesOperatorByOperator) {
  TP_SKIP_WITHOUT_ONNX_RUNTIME();
  const TempDir dir;
  const Tensor x = at::rand({3, 4, 8, 6});
  write_safetensors(dir / "in", {{"x", x}});
  const auto output = [&](const std::string& name) { return dir / (name + ".out"); };
  std::vector<std::string> files;
  for (const auto& [name, function] : functions()) {
    EXPECT_NO_THROW(export_onnx(config_of(function), dir / name)) << name;
    files.insert(files.end(), {dir / name, dir / "in", output(name)});
  }
  run_onnx(files);
  for (const auto& [name, function] : functions()) {
    if (!exists(output(name))) continue;  // which was told above
    const Tensor expected = OfflinePredictor(config_of(function))(x)[0];
    const Tensor found = read_safetensors(output(name)).tensors.at("y");
    EXPECT_TRUE(found.sizes() == expected.sizes() && at::allclose(found, expected, 1e-4, 1e-5))
        << name << " is " << found.sizes() << " instead of " << expected.sizes();
  }
}

auto exporting(Function function) {
  return [function] {
    const TempDir dir;
    export_onnx(config_of(function), dir / "model");
  };
}

TEST(OnnxTest, AnOperatorWithoutAMappingIsNamedWithItsLayer) {
  EXPECT_THAT(exporting([](const Tensor& x) {
                const VariableScope scope("strange");
                return at::cumprod(x, 1);
              }),
              ThrowsMessage<Error>(AllOf(HasSubstr("aten::cumprod in layer 'strange'"),
                                         HasSubstr("no mapping to ONNX"))));
}

TEST(OnnxTest, AnArgumentWithoutAMappingIsNamedWithItsLayer) {
  EXPECT_THAT(exporting([](const Tensor& x) {
                const VariableScope scope("pool");
                return at::avg_pool2d(x, 2, 2, 0, false, true, /*divisor_override=*/3);
              }),
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("aten::avg_pool2d in layer 'pool'"), HasSubstr("divisor"))));
}

TEST(OnnxTest, WritesThroughAnotherViewAreRefused) {
  EXPECT_THAT(exporting([](const Tensor& x) {
                Tensor y = x.clone();
                y.select(1, 0).add_(1);
                return y;
              }),
              ThrowsMessage<Error>(AllOf(HasSubstr("aten::add_."), HasSubstr("in place"))));
}

TEST(OnnxTest, FoldingLeavesNoBatchNormAfterAConvolution) {
  ExportedProgram program = export_program(config_of([](const Tensor& x) {
    Tensor y = BatchNorm("bn0", Conv2D("conv0", x, {.filters = 5, .kernel_size = 3}));
    const Tensor shared = Conv2D("conv1", y.relu(), {.filters = 5, .kernel_size = 1});
    return BatchNorm("bn1", shared) + shared;  // this one has to stay
  }));
  const auto count = [&](const std::string& op) {
    return std::count_if(program.nodes.begin(), program.nodes.end(),
                         [&](const ExportedNode& node) { return node.op == op; });
  };
  EXPECT_EQ(count("aten::native_batch_norm"), 2);
  fold_batch_norm(program);
  EXPECT_EQ(count("aten::native_batch_norm"), 1);
  EXPECT_EQ(count("aten::convolution"), 2);
}

}  // namespace
}  // namespace tensorpack
