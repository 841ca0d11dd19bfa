// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <torch/library.h>

#include "tensorpack/optim/kernels.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::kernels {
namespace {

void check_finite_any(at::TensorList tensors, const std::vector<std::string>& names) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    // x - x is 0 for every finite x, and NaN for the others.
    TP_CHECK((tensors[i] - tensors[i]).sum().item<double>() == 0, "CheckGradient",
             "the gradient of '{}' has a NaN or an infinity. Lower the learning rate, clip "
             "gradients, or look at the cost.",
             names[i]);
  }
}

}  // namespace

// No write and no result: a recorded program keeps such nodes, and their order.
void check_finite(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names) {
  static const auto op = find_operator("tensorpack::check_finite");
  torch::jit::Stack stack{tensors, names};
  op.callBoxed(stack);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("check_finite(Tensor[] tensors, str[] names) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("check_finite", [](at::TensorList tensors, std::vector<std::string> names) {
    check_finite_any(tensors, names);
  });
}

}  // namespace tensorpack::kernels
