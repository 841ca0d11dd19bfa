// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/pointwise_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kPositions = R"cuda(
template <int W>
__device__ __forceinline__ void fill(float (&f)[W], float v) {
#pragma unroll
  for (int i = 0; i < W; ++i) f[i] = v;
}
)cuda";

bool is_fast(const Formula& formula) {
  return std::none_of(formula.steps.begin(), formula.steps.end(),
                      [](const Step& step) { return step.type == c10::kFloat; });
}

std::string float_text(double number) {
  if (std::isnan(number)) return "not_a_number()";
  if (std::isinf(number)) return number > 0 ? "infinity()" : "-infinity()";
  return fmt::format("{:#.9g}f", number);
}

// Writes the statements of one thread, for the elements from `n` on.
class Writer {
 public:
  explicit Writer(const PointwisePlan& plan) : plan_(plan) {}

  std::string head() const {
    return prelude() +
           fmt::format("using Index = unsigned{};\nconstexpr int W = {};\n",
                       plan_.is_large ? " long long" : "", plan_.width) +
           fmt::format("constexpr bool kFast = {};\n", is_fast(plan_.formula)) +
           pointwise_functions(plan_.formula) + kPositions + positions();
  }

  std::string parameters() const {
    std::string text;
    for (size_t i = 0; i < plan_.types.size(); ++i) {
      text += fmt::format("const {}* __restrict__ p{}, ", input_type(plan_.types[i]), i);
    }
    for (int result : plan_.formula.results) {
      text += fmt::format("{}* __restrict__ r{}, ", input_type(type_of(result)), result);
    }
    return text;
  }

  // Leaves the results in arrays y<value>.
  std::string body() const {
    std::string text;
    for (size_t i = 0; i < plan_.walks.size(); ++i) text += load(i);
    for (int result : plan_.formula.results) text += fmt::format("    float y{}[W];\n", result);
    text += "#pragma unroll\n    for (int i = 0; i < W; ++i) {\n";
    for (size_t i = 0; i < plan_.formula.steps.size(); ++i) text += step(i);
    for (int result : plan_.formula.results) text += fmt::format("      y{0}[i] = v{0};\n", result);
    text += "    }\n";
    for (int result : plan_.formula.results) {
      text += fmt::format("    store<W>(r{0} + n, y{0});\n", result);
    }
    return text;
  }

 private:
  c10::ScalarType type_of(int value) const {
    return plan_.formula.steps.at(value - plan_.formula.inputs).type;
  }

  bool is_flat(const Walk& walk) const {
    return walk.empty() || (walk.size() == 1 && walk[0].stride == 1);
  }
  bool is_scalar(const Walk& walk) const { return walk.size() == 1 && walk[0].stride == 0; }
  // The elements of a thread lie in one row of the input, as neighbours or all in one place.
  bool is_in_row(const Walk& walk, int64_t stride) const {
    return walk.back().stride == stride && walk.back().size % plan_.width == 0;
  }
  bool is_vector(size_t input) const {
    const Walk& walk = plan_.walks[input];
    return plan_.aligned[input] && is_in_row(walk, 1) &&
           std::all_of(walk.begin(), walk.end() - 1,
                       [&](const Dimension& d) { return d.stride % plan_.width == 0; });
  }

  // Functions from an element's number to its position in an input, where that is another.
  std::string positions() const {
    std::string text;
    for (size_t i = 0; i < plan_.walks.size(); ++i) {
      const Walk& walk = plan_.walks[i];
      if (is_flat(walk) || is_scalar(walk)) continue;
      std::string terms;
      int64_t inner = 1;
      for (size_t d = walk.size(); d-- > 0; inner *= walk[d].size) {
        if (walk[d].stride == 0) continue;
        std::string index = inner == 1 ? "n" : fmt::format("n / {}u", inner);
        if (d > 0) index += fmt::format(" % {}u", walk[d].size);
        terms += fmt::format("{}{} * {}u", terms.empty() ? "" : " + ", index, walk[d].stride);
      }
      text += fmt::format("__device__ __forceinline__ Index position{}(Index n) {{ return {}; }}\n",
                          i, terms);
    }
    return text;
  }

  std::string load(size_t i) const {
    const Walk& walk = plan_.walks[i];
    const std::string begin = fmt::format("    float x{}[W];\n    ", i);
    const bool is_same_order = is_flat(walk);
    if (is_same_order && plan_.aligned[i]) {
      return begin + fmt::format("unpack<W>(load<W>(p{0} + n), x{0});\n", i);
    }
    if (is_same_order) {
      return begin +
             fmt::format("for (int i = 0; i < W; ++i) x{0}[i] = to_float(p{0}[n + i]);\n", i);
    }
    if (is_scalar(walk)) return begin + fmt::format("fill<W>(x{0}, to_float(*p{0}));\n", i);
    if (is_vector(i)) {
      return begin + fmt::format("unpack<W>(load<W>(p{0} + position{0}(n)), x{0});\n", i);
    }
    if (is_in_row(walk, 0)) {
      return begin + fmt::format("fill<W>(x{0}, to_float(p{0}[position{0}(n)]));\n", i);
    }
    return begin +
           fmt::format(
               "for (int i = 0; i < W; ++i) x{0}[i] = to_float(p{0}[position{0}(n + i)]);\n", i);
  }

  std::string text_of(const Operand& operand) const {
    if (operand.value == Operand::kNumber) return float_text(operand.number);
    return operand.value < plan_.formula.inputs ? fmt::format("x{}[i]", operand.value)
                                                : fmt::format("v{}", operand.value);
  }

  std::string step(size_t index) const {
    const Step& step = plan_.formula.steps[index];
    std::vector<std::string> operands;
    for (const Operand& operand : step.operands) operands.push_back(text_of(operand));
    std::string value = fmt::format("op_{}({})", step.op, fmt::join(operands, ", "));
    if (step.type != c10::kFloat) {
      value = fmt::format("rounded<{}>({})", input_type(step.type), value);
    }
    return fmt::format("      const float v{} = {};\n", plan_.formula.inputs + index, value);
  }

  const PointwisePlan& plan_;
};

}  // namespace

KernelSource pointwise_source(const PointwisePlan& plan) {
  const Writer writer(plan);
  return {"pointwise",
          writer.head() +
              fmt::format("\nextern \"C\" __global__ void __launch_bounds__(256)\n"
                          "pointwise({}long long elements) {{\n"
                          "  const Index n = ((Index)blockIdx.x * blockDim.x + threadIdx.x) * W;\n"
                          "  if (n < elements) {{\n{}  }}\n}}\n",
                          writer.parameters(), writer.body())};
}

KernelSource pointwise_sum_source(const PointwisePlan& plan, c10::ScalarType sums) {
  const Writer writer(plan);
  const int summed = plan.formula.results.at(0);
  return {"pointwise_sum",
          writer.head() +
              fmt::format("constexpr int U = 1, kThreads = {};\n", ColumnPlan::kThreads) +
              column_sums() + column_rows() +
              fmt::format(
                  "\nextern \"C\" __global__ void __launch_bounds__(kThreads, 2)\n"
                  "pointwise_sum({}{}* sums, float2* partial, unsigned* counter, long long R, "
                  "int C) {{\n"
                  "  const int c = first_column();\n"
                  "  float s[W] = {{}}, unused[W] = {{}};\n"
                  "  const long long step = (long long)gridDim.y * blockDim.y;\n"
                  "  for (long long r = (long long)blockIdx.y * blockDim.y + threadIdx.y;\n"
                  "       c < C && r < R; r += step) {{\n"
                  "    const Index n = r * C + c;\n"
                  "{}"
                  "#pragma unroll\n"
                  "    for (int i = 0; i < W; ++i) s[i] += y{}[i];\n"
                  "  }}\n"
                  "  combine(s, unused, C, partial, counter,\n"
                  "          [&](int column, float sum, float) {{ from_float(sum, sums[column]); "
                  "}});\n}}\n",
                  writer.parameters(), kernel_type(sums), writer.body(), summed)};
}

}  // namespace tensorpack::cuda
