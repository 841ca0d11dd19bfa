// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/first_choice.h"

#include <ATen/Context.h>
#include <ATen/core/stack.h>

#include <optional>

#include "tensorpack/cuda/kernels/convolution.h"

namespace tensorpack::cuda {
namespace {

// libtorch keeps what it took, so that another kernel is not looked for later.
class WithoutSearch {
 public:
  WithoutSearch() : before_(at::globalContext().benchmarkCuDNN()) {
    at::globalContext().setBenchmarkCuDNN(false);
  }
  ~WithoutSearch() { at::globalContext().setBenchmarkCuDNN(before_); }
  WithoutSearch(const WithoutSearch&) = delete;
  WithoutSearch& operator=(const WithoutSearch&) = delete;

 private:
  bool before_;
};

class FirstChoice final : public OperatorWatch {
 public:
  explicit FirstChoice(c10::DeviceType device) : device_(device) {}

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    std::optional<WithoutSearch> without_search;
    if (is_chosen(op, *stack)) without_search.emplace();
    pass_on(op, below, stack);
  }

 private:
  bool is_chosen(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
    // Where they have their input and their groups.
    static const c10::OperatorName kForward("aten::convolution", "");
    static const c10::OperatorName kBackward("aten::convolution_backward", "");
    if (op.operator_name() == kForward) return is_chosen(op, stack, 0, 8);
    return op.operator_name() == kBackward && is_chosen(op, stack, 1, 9);
  }

  bool is_chosen(const c10::OperatorHandle& op, const torch::jit::Stack& stack, size_t input,
                 size_t groups) const {
    const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
    const at::Tensor& given = arguments[input].toTensor();
    return given.device().type() == device_ &&
           has_chosen_convolution(given.scalar_type(), given.sizes().size(),
                                  arguments[groups].toInt());
  }

  c10::DeviceType device_;
};

}  // namespace

std::shared_ptr<OperatorWatch> first_choice_of_convolutions(c10::DeviceType device) {
  return std::make_shared<FirstChoice>(device);
}

}  // namespace tensorpack::cuda
