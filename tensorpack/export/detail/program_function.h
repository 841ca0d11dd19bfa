// SPDX-License-Identifier: Apache-2.0
// An exported program as a function over tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "tensorpack/export/exported_program.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

/// Calls the operators of a program, one after the other, as the model's function did: what is made
/// of it by sessions is recorded, lowered and verified as any other function is. Has no state: may
/// be called by several threads at once.
class ProgramFunction {
 public:
  /// Finds the operators and brings the constants to the device. Operators are allowed by Note
  /// [Operators of files] or named in `more_operators`. Throws Malformed, which names the operator,
  /// where one is unknown, not allowed, or does not take these arguments.
  ProgramFunction(const ExportedProgram& program, c10::Device device,
                  const std::vector<std::string>& more_operators = {});

  /// One tensor per input; returns one per output.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;

 private:
  struct Argument {
    c10::TypePtr type;
    ExportedArgument value;
  };
  struct Step {
    c10::OperatorHandle op;
    std::vector<Argument> arguments;
    std::vector<ExportedResult> results;
    bool grad_mode;
    std::string description;
    std::vector<ExportedId> releases;  // values that nobody needs from here on
  };
  struct Number {
    ExportedId id;
    std::variant<bool, Extent, double> value;
  };
  struct Tensor {
    ExportedId id;
    at::Tensor value;
  };
  struct Call;

  static Step make_step(const ExportedNode& node, const std::vector<std::string>& more_operators);
  void find_releases();
  int64_t batch_of(const std::vector<at::Tensor>& inputs) const;
  void run(const Step& step, Call& call) const;

  c10::Device device_;
  int64_t unit_;
  size_t value_count_;
  std::vector<ExportedInput> inputs_;
  std::vector<ExportedOutput> outputs_;
  std::vector<Tensor> tensors_;
  std::vector<Number> numbers_;
  std::vector<Step> steps_;
};

}  // namespace tensorpack::detail
