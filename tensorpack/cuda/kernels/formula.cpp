// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/formula.h"

#include <fmt/format.h>

#include <array>
#include <sstream>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kWhere = "pointwise";
constexpr std::array kTypes = {c10::kFloat, c10::kBFloat16, c10::kHalf, c10::kBool, c10::kByte};

std::string to_text(const Operand& operand) {
  return operand.value == Operand::kNumber ? fmt::format("{}", operand.number)
                                           : fmt::format("%{}", operand.value);
}

std::string to_text(const Step& step) {
  std::vector<std::string> operands;
  for (const Operand& operand : step.operands) operands.push_back(to_text(operand));
  return fmt::format("{} {} : {}", step.op, fmt::join(operands, " "), input_type(step.type));
}

// Reads a formula word by word.
class Parser {
 public:
  Parser(const std::string& text, int inputs) : text_(text), words_(text) {
    formula_.inputs = inputs;
  }

  Formula parse() {
    do {
      formula_.steps.push_back(step());
    } while (separator_ == ";");
    check(separator_ == "->");
    std::string word;
    while (words_ >> word) formula_.results.push_back(operand(word).value);
    check(!formula_.results.empty());
    return std::move(formula_);
  }

 private:
  Step step() {
    Step step{.op = word()};
    std::string next = word();
    for (; next != ":"; next = word()) step.operands.push_back(operand(next));
    step.type = type(word());
    separator_ = word();
    check(is_pointwise(step.op, step.operands.size()));
    return step;
  }

  // Of the values that are there already.
  Operand operand(const std::string& word) const {
    if (word.front() != '%') {
      const std::optional<double> number = parse_number(word);
      check(number.has_value());
      return {.number = *number};
    }
    const std::optional<int64_t> value = parse_integer(std::string_view(word).substr(1));
    const auto values = formula_.inputs + std::ssize(formula_.steps);
    check(value && *value >= 0 && *value < values);
    return {.value = static_cast<int>(*value)};
  }

  c10::ScalarType type(const std::string& word) const {
    for (c10::ScalarType type : kTypes) {
      if (has_step_type(type) && word == input_type(type)) return type;
    }
    check(false);
    return c10::kFloat;
  }

  std::string word() {
    std::string word;
    words_ >> word;
    check(!word.empty());
    return word;
  }

  void check(bool is_right) const {
    TP_CHECK(is_right, kWhere,
             "'{}' is no formula of {}. Let fuse_pointwise() write it, or see "
             "cuda/kernels/formula.h.",
             text_, counted(formula_.inputs, "input"));
  }

  std::string text_;
  std::istringstream words_;
  std::string separator_ = {};
  Formula formula_ = {};
};

}  // namespace

std::string to_text(const Formula& formula) {
  std::vector<std::string> steps;
  for (const Step& step : formula.steps) steps.push_back(to_text(step));
  return fmt::format("{} -> %{}", fmt::join(steps, " ; "), fmt::join(formula.results, " %"));
}

Formula parse_formula(const std::string& text, int inputs) { return Parser(text, inputs).parse(); }

bool has_step_type(c10::ScalarType type) { return has_kernel_type(type) || type == c10::kBool; }

bool has_input_type(c10::ScalarType type) { return has_step_type(type) || type == c10::kByte; }

std::string input_type(c10::ScalarType type) {
  TP_ASSERT(has_input_type(type));
  if (type == c10::kBool) return "boolean";
  return type == c10::kByte ? "byte" : kernel_type(type);
}

}  // namespace tensorpack::cuda
