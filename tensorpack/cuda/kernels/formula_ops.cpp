// SPDX-License-Identifier: Apache-2.0
// The operators of formulas, in their two forms: libtorch's, and device code.
#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tensorpack/cuda/kernels/formula.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

using at::Tensor;

// The operands of one step as libtorch's operators want them.
class Operands {
 public:
  Operands(const Step& step, const std::vector<Tensor>& values) : step_(step), values_(values) {}

  /// A number becomes a tensor that does not change the type of the result.
  Tensor operator[](size_t i) const {
    const Operand& operand = step_.operands.at(i);
    return operand.value == Operand::kNumber ? at::native::wrapped_scalar_tensor(operand.number)
                                             : values_.at(operand.value);
  }
  /// A number becomes a tensor of the result's type, where the first operand is.
  Tensor typed(size_t i) const {
    const Operand& operand = step_.operands.at(i);
    if (operand.value != Operand::kNumber) return values_.at(operand.value).to(step_.type);
    return at::full({}, operand.number, (*this)[0].options().dtype(step_.type));
  }
  double number(size_t i) const { return step_.operands.at(i).number; }
  c10::ScalarType type() const { return step_.type; }

 private:
  const Step& step_;
  const std::vector<Tensor>& values_;
};

struct PointwiseOp {
  size_t operands = 1;
  const char* expression = "";  // device code, of floats a, b and c
  Tensor (*run)(const Operands& o) = nullptr;
};

const std::map<std::string, PointwiseOp>& pointwise_ops() {
  static const std::map<std::string, PointwiseOp> ops = {
      {"cast", {1, "a", [](const Operands& o) { return o[0].to(o.type()); }}},
      {"neg", {1, "-a", [](const Operands& o) { return at::neg(o[0]); }}},
      {"abs", {1, "fabsf(a)", [](const Operands& o) { return at::abs(o[0]); }}},
      {"relu", {1, "relu(a)", [](const Operands& o) { return at::relu(o[0]); }}},
      {"sigmoid",
       {1, "quotient(1.f, 1.f + exponential(-a))",
        [](const Operands& o) { return at::sigmoid(o[0]); }}},
      {"tanh", {1, "hyperbolic_tangent(a)", [](const Operands& o) { return at::tanh(o[0]); }}},
      {"silu",
       {1, "quotient(a, 1.f + exponential(-a))", [](const Operands& o) { return at::silu(o[0]); }}},
      {"gelu",
       {1, "a * cumulative(a, exponential(-0.5f * a * a))",
        [](const Operands& o) { return at::gelu(o[0], "none"); }}},
      {"gelu_tanh",
       {1, "0.5f * a * (1.f + hyperbolic_tangent(gelu_argument(a)))",
        [](const Operands& o) { return at::gelu(o[0], "tanh"); }}},
      {"exp", {1, "exponential(a)", [](const Operands& o) { return at::exp(o[0]); }}},
      {"log", {1, "logf(a)", [](const Operands& o) { return at::log(o[0]); }}},
      {"sqrt", {1, "sqrtf(a)", [](const Operands& o) { return at::sqrt(o[0]); }}},
      {"rsqrt", {1, "1.f / sqrtf(a)", [](const Operands& o) { return at::rsqrt(o[0]); }}},
      {"reciprocal", {1, "1.f / a", [](const Operands& o) { return at::reciprocal(o[0]); }}},
      {"add", {3, "a + c * b", [](const Operands& o) { return at::add(o[0], o[1], o.number(2)); }}},
      {"sub", {3, "a - c * b", [](const Operands& o) { return at::sub(o[0], o[1], o.number(2)); }}},
      {"rsub",
       {3, "b - c * a", [](const Operands& o) { return at::rsub(o[0], o[1], o.number(2)); }}},
      {"mul", {2, "a * b", [](const Operands& o) { return at::mul(o[0], o[1]); }}},
      {"div", {2, "a / b", [](const Operands& o) { return at::div(o[0], o[1]); }}},
      {"maximum",
       {2, "a != a ? a : b != b ? b : fmaxf(a, b)",
        [](const Operands& o) { return at::maximum(o[0], o[1]); }}},
      {"minimum",
       {2, "a != a ? a : b != b ? b : fminf(a, b)",
        [](const Operands& o) { return at::minimum(o[0], o[1]); }}},
      {"eq", {2, "a == b", [](const Operands& o) { return at::eq(o[0], o[1]); }}},
      {"ne", {2, "a != b", [](const Operands& o) { return at::ne(o[0], o[1]); }}},
      {"lt", {2, "a < b", [](const Operands& o) { return at::lt(o[0], o[1]); }}},
      {"le", {2, "a <= b", [](const Operands& o) { return at::le(o[0], o[1]); }}},
      {"gt", {2, "a > b", [](const Operands& o) { return at::gt(o[0], o[1]); }}},
      {"ge", {2, "a >= b", [](const Operands& o) { return at::ge(o[0], o[1]); }}},
      {"where",
       {3, "a != 0.f ? b : c",
        [](const Operands& o) { return at::where(o[0], o.typed(1), o.typed(2)); }}},
      {"masked_fill",
       {3, "b != 0.f ? c : a",
        [](const Operands& o) { return at::masked_fill(o[0], o[1], o.number(2)); }}},
      {"clamp",
       {3, "a != a ? a : fminf(fmaxf(a, b), c)",
        [](const Operands& o) { return at::clamp(o[0], o.number(1), o.number(2)); }}},
      {"pow", {2, "power(a, b)", [](const Operands& o) { return at::pow(o[0], o.number(1)); }}},
      {"leaky_relu",
       {2, "a > 0.f ? a : a * b",
        [](const Operands& o) { return at::leaky_relu(o[0], o.number(1)); }}},
      {"leaky_relu_backward",
       {3, "b > 0.f ? a : a * c",
        [](const Operands& o) { return at::leaky_relu_backward(o[0], o[1], o.number(2), false); }}},
      {"threshold_backward",
       {3, "b <= c ? 0.f : a",
        [](const Operands& o) { return at::threshold_backward(o[0], o[1], o.number(2)); }}},
      {"sigmoid_backward",
       {2, "a * (1.f - b) * b",
        [](const Operands& o) { return at::sigmoid_backward(o[0], o[1]); }}},
      {"tanh_backward",
       {2, "a * (1.f - b * b)", [](const Operands& o) { return at::tanh_backward(o[0], o[1]); }}},
      {"silu_backward",
       {2, "silu_gradient(a, b)", [](const Operands& o) { return at::silu_backward(o[0], o[1]); }}},
      {"gelu_backward",
       {2, "gelu_gradient(a, b)",
        [](const Operands& o) { return at::gelu_backward(o[0], o[1], "none"); }}},
      {"gelu_tanh_backward",
       {2, "gelu_tanh_gradient(a, b)",
        [](const Operands& o) { return at::gelu_backward(o[0], o[1], "tanh"); }}},
      {"dropout_backward",
       {3, "a * b * c",
        [](const Operands& o) { return at::native_dropout_backward(o[0], o[1], o.number(2)); }}},
  };
  return ops;
}

// kFast is set where every step is rounded to 16 bits: approximations that are right to seven
// digits then serve, and libtorch's functions would take longer than the memory.
constexpr const char* kFunctions = R"cuda(
struct boolean { unsigned char bits; };
struct byte { unsigned char bits; };
__device__ __forceinline__ float to_float(boolean v) { return v.bits ? 1.f : 0.f; }
__device__ __forceinline__ float to_float(byte v) { return (float)v.bits; }
__device__ __forceinline__ void from_float(float v, boolean& to) { to.bits = v != 0.f; }
template <class T>
__device__ __forceinline__ float rounded(float v) {
  T to;
  from_float(v, to);
  return to_float(to);
}

__device__ __forceinline__ float exponential(float x) {
#ifdef __CUDACC_RTC__
  if (kFast) return __expf(x);
#endif
  return expf(x);
}
__device__ __forceinline__ float quotient(float a, float b) {
#ifdef __CUDACC_RTC__
  if (kFast) return __fdividef(a, b);
#endif
  return a / b;
}
__device__ __forceinline__ float hyperbolic_tangent(float x) {
  if (!kFast) return tanhf(x);
  if (fabsf(x) < 0.02f) return x - 0.33333333f * x * x * x;  // the quotient would lose digits
  return 1.f - quotient(2.f, 1.f + exponential(2.f * x));
}
// Of the normal distribution, given exp(-x * x / 2). The fast one: Abramowitz and Stegun, 7.1.26.
__device__ __forceinline__ float cumulative(float x, float density) {
  if (!kFast) return 0.5f * erfcf(x * -0.70710678f);
  const float t = quotient(1.f, 1.f + 0.23164189f * fabsf(x));
  const float p = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t +
                   0.254829592f) * t;
  const float tail = 0.5f * p * density;
  return x < 0.f ? tail : 1.f - tail;
}
__device__ __forceinline__ float gelu_argument(float x) {
  return 0.79788456f * (x + 0.044715f * x * x * x);
}
__device__ __forceinline__ float power(float a, float b) {
  if (b == 2.f) return a * a;
  if (b == 3.f) return a * a * a;
  if (b == 0.5f) return sqrtf(a);
  if (b == -0.5f) return 1.f / sqrtf(a);
  if (b == -1.f) return 1.f / a;
  if (b == -2.f) return 1.f / (a * a);
  return powf(a, b);
}
__device__ __forceinline__ float silu_gradient(float g, float x) {
  const float s = quotient(1.f, 1.f + exponential(-x));
  return g * s * (1.f + x * (1.f - s));
}
__device__ __forceinline__ float gelu_gradient(float g, float x) {
  const float density = exponential(-0.5f * x * x);
  return g * (cumulative(x, density) + 0.39894228f * x * density);
}
__device__ __forceinline__ float gelu_tanh_gradient(float g, float x) {
  const float t = hyperbolic_tangent(gelu_argument(x));
  const float slope = 0.79788456f * (1.f + 0.134145f * x * x);
  return g * (0.5f * (1.f + t) + 0.5f * x * (1.f - t * t) * slope);
}
)cuda";

}  // namespace

bool is_pointwise(const std::string& op, size_t operands) {
  const auto found = pointwise_ops().find(op);
  return found != pointwise_ops().end() && found->second.operands == operands;
}

Tensor run_step(const Step& step, const std::vector<Tensor>& values) {
  TP_ASSERT(is_pointwise(step.op, step.operands.size()));
  const auto run = pointwise_ops().at(step.op).run;
  const auto is_right = [&](const Operand& operand) {
    if (operand.value == Operand::kNumber) return true;
    const Tensor& value = values.at(operand.value);
    // On CPUs libtorch lacks some operators in 16 bits.
    return !value.is_floating_point() || value.scalar_type() == at::kFloat ||
           (!value.is_cpu() && value.scalar_type() == step.type);
  };
  if (std::all_of(step.operands.begin(), step.operands.end(), is_right)) {
    return run(Operands(step, values)).to(step.type);
  }
  std::vector<Tensor> wide;
  for (const Tensor& value : values) {
    wide.push_back(value.is_floating_point() ? value.to(at::kFloat) : value);
  }
  return run(Operands(step, wide)).to(step.type);
}

std::string pointwise_functions(const Formula& formula) {
  std::set<std::string> names;
  for (const Step& step : formula.steps) names.insert(step.op);
  std::string text = kFunctions;
  for (const std::string& name : names) {
    const PointwiseOp& op = pointwise_ops().at(name);
    constexpr std::array kParameters = {"float a", "float a, float b", "float a, float b, float c"};
    text += fmt::format("__device__ __forceinline__ float op_{}({}) {{ return {}; }}\n", name,
                        kParameters.at(op.operands - 1), op.expression);
  }
  return text;
}

}  // namespace tensorpack::cuda
