// SPDX-License-Identifier: Apache-2.0
// The fused operators of the program. A pass puts them in the place of libtorch's; from then on
// they are operators as any other, which replay, capture, verification, profile and dump know.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace tensorpack::cuda {

/// True for those of the operators below that kernels of ours run, and for updates.
bool launches_kernels(const c10::OperatorHandle& op);

c10::OperatorHandle adam_and_copies_operator();
c10::OperatorHandle batch_norm_act_operator();
c10::OperatorHandle batch_norm_act_again_operator();
c10::OperatorHandle batch_norm_act_backward_operator();
c10::OperatorHandle batch_norm_pool_operator();
c10::OperatorHandle batch_norm_pool_backward_operator();
c10::OperatorHandle batch_norm_statistics_operator();
c10::OperatorHandle bias_relu_operator();
c10::OperatorHandle bias_relu_backward_operator();
c10::OperatorHandle cast_together_operator();
c10::OperatorHandle column_sum_operator();
c10::OperatorHandle concat_sum_operator();
c10::OperatorHandle convolution_operator();
c10::OperatorHandle convolution_backward_operator();
c10::OperatorHandle cross_entropy_operator();
c10::OperatorHandle embedding_gradient_operator();
c10::OperatorHandle filter_gradient_operator();
c10::OperatorHandle fold_image_operator();
c10::OperatorHandle folded_convolution_operator();
c10::OperatorHandle folded_weight_gradient_operator();
c10::OperatorHandle layer_norm_operator();
c10::OperatorHandle layer_norm_backward_operator();
c10::OperatorHandle max_pool_operator();
c10::OperatorHandle max_pool_backward_operator();
c10::OperatorHandle pointwise_operator();
c10::OperatorHandle pointwise_sum_operator();
c10::OperatorHandle sgd_and_copies_operator();

}  // namespace tensorpack::cuda
