// SPDX-License-Identifier: Apache-2.0
// Rewrites of a trace that pay on CUDA devices. They need no CUDA themselves.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tensorpack/graph/trace.h"
#include "tensorpack/session/detail/pass_switches.h"

namespace tensorpack::cuda {

/// Has convolutions run the kernels that were the fastest on this device; returns how many. Comes
/// last: others know libtorch's. See Note [Choosing convolutions].
int choose_convolutions(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Makes small casts on devices of this type together, where nothing is in between, and has them
/// put together what was put together before a cast. See Note [Batching casts].
void batch_casts(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Has in-place operators that fusion knows make new memory instead, where nobody can tell. See
/// Note [In-place operators].
void make_functional(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Has updates read the gradients of 16 bits themselves, where they are cast for nobody else. See
/// Note [Gradients of 16 bits].
void feed_updates(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Has updates write the casts of weights to 16 bits that the step begins with; returns of how many
/// variables. Comes after batch_casts() and feed_updates(). See Note [Keeping copies].
int keep_copies(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Has convolutions of stride 2 over images of few channels work on folded images; returns into how
/// many operators. See Note [Folded images].
int fold_images(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Fuses batch norm in training, forward and backward, with its surroundings; returns into how many
/// operators. See Note [Fusing batch norm].
int fuse_batch_norm(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Moves the biases of convolutions into the relu that follows, both ways; returns into how many
/// operators. See Note [Biases of convolutions].
int fuse_bias_relu(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Puts sums over the rows of large matrices in place of libtorch's, with the concatenation that
/// makes the matrix where one does; returns how many. See Note [Concatenations and sums].
int fuse_column_sums(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Fuses log-softmax and the negative log-likelihood of classes, forward and backward, with the
/// casts around them; returns into how many operators.
int fuse_cross_entropy(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Has gradients of words' vectors read the gradient that is added to them; returns how many. See
/// Note [Gradients of words].
int fuse_embedding_gradient(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Puts gradients of filters over small batches of images of few channels in place of libtorch's;
/// returns how many. See Note [Gradients of filters].
int fuse_filter_gradients(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Fuses layer norm, forward and backward, with the additions and casts around it; returns into how
/// many operators. See Note [Fusing layer norm].
int fuse_layer_norm(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Puts pooling with small places in place of libtorch's, forward and backward; returns how many.
int fuse_max_pool(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Has batch norm and relu, forward and backward, work on what the max pooling behind them takes;
/// returns how many poolings became part of them. Comes after fuse_batch_norm() and before
/// fuse_max_pool(). See Note [Pooling what is normalised].
int fuse_norm_pool(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Moves the biases and relus of convolutions behind the max pooling that follows, both ways;
/// returns how many. See Note [Pooling first].
int pool_before_relu(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Makes the additions of convolutions' biases, and the sums of their gradients, operators of the
/// trace, where they can be fused. See Note [Biases as operators].
void expose_biases(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// Fuses chains of pointwise operators, and sums over the rows of what they make; returns into how
/// many operators. See Note [Fusing pointwise operators].
int fuse_pointwise(Trace& trace, c10::DeviceType device = c10::kCUDA);

struct RecomputeLimits {
  int64_t enough = 0;  ///< when no more bytes than these are held at a time, it is done
  /// So many bytes may be read and written for one that is let go; kernels that run anyway write 1.
  double most_traffic = std::numeric_limits<double>::infinity();
};
/// Lets go of what is cheap to make again in the backward pass, the cheapest first, as far as that
/// lowers the most that is held at a time; returns how many values. See Note [Making things again].
int recompute(Trace& trace, c10::DeviceType device = c10::kCUDA,
              const RecomputeLimits& limits = {});

/// Has small gradients of weights computed beside the rest of the backward pass. Comes after all
/// that changes nodes. See Note [A side stream].
void use_side_stream(Trace& trace, c10::DeviceType device = c10::kCUDA);

/// What CUDA devices run: the general optimize(), then the passes above. Memory is saved by
/// Recompute::kSome where the function holds `much_memory` or more.
void optimize(Trace& trace, const std::vector<std::string>& fetches,
              const PassSwitches& options = {}, int64_t much_memory = kMuchMemory);

}  // namespace tensorpack::cuda
