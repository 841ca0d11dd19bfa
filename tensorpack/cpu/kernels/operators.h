// SPDX-License-Identifier: Apache-2.0
// The operators of the program that kernels of this folder run. A pass puts them in the place of
// libtorch's; from then on they are operators as any other, which replay, verification, profile and
// dump know.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tensorpack::cpu {

c10::OperatorHandle pool_squares_operator();
c10::OperatorHandle pool_squares_backward_operator();
c10::OperatorHandle weight_gradient_operator();
c10::OperatorHandle winograd_operator();
c10::OperatorHandle winograd_backward_operator();

}  // namespace tensorpack::cpu
