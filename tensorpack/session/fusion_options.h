// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace tensorpack {

/// When results of a training step that are cheap to compute are let go after the forward pass and
/// made again in the backward pass. The step then holds less memory and takes longer.
enum class Recompute {
  kNever,
  kIfNeeded,  ///< all of them, where the device has no room for the step otherwise
  /// Those that kernels make which run anyway, so that a training takes a tenth less memory than
  /// the function by itself would, if that is more than a sixteenth of the device. Otherwise as
  /// kIfNeeded.
  kSome,
  kAlways,
};

/// Recompute::kSome: of what its function holds a step holds so much. Inputs and variables come to
/// it, so that a training as a whole takes a tenth less.
constexpr double kSomeShare = 0.87;
/// The least memory of a function of which some is saved, where nothing is known of the device.
constexpr int64_t kMuchMemory = int64_t{1} << 30;

/// Which operators become kernels of ours: on CUDA all of these, on the CPU convolutions and
/// max_pool. They round differently from libtorch's, by as much as those round (convolutions by a
/// few times as much): with none() a program gives libtorch's bits.
struct FusionOptions {
  bool batch_norm = true;     ///< with the relu, the residual and the gradients around it
  bool bias_relu = true;      ///< after convolutions, and both their gradients
  bool column_sums = true;    ///< the gradients of biases, of concatenations with those
  bool convolutions = true;   ///< CPU: 3x3, gradients over grey images; CUDA: of images
  bool cross_entropy = true;  ///< log-softmax, the loss and both their gradients
  bool cudnn_choice = true;   ///< on CUDA: cuDNN's kernels, tried once and for all
  bool few_channels = true;   ///< gradients of filters over few channels, if small
  bool layer_norm = true;     ///< with the residual, the casts and the sums around it
  bool max_pool = true;       ///< with places of a byte instead of indices of eight
  bool norm_pool = true;      ///< max pooling behind batch norm and relu, both ways
  bool pointwise = true;      ///< chains of them, sums over chains, gradients of words
  bool updates = true;        ///< read gradients of 16 bits as they are
  bool batch_casts = true;    ///< many small casts as one operator
  bool memsets = true;        ///< memory is cleared by kernels in captured graphs
  bool side_stream = true;    ///< small gradients of weights, beside the other gradients
  /// On CUDA: updates write the copies of weights in 16 bits, too, with which the next step begins.
  /// Variables may then be written by ops, assign() and operators of libtorch, also in place and
  /// through views or detach(), but not through data() or a pointer: nobody would notice that, and
  /// steps would go on with the old weights. Each program holds copies of its own.
  bool keep_copies = false;
  Recompute recompute = Recompute::kSome;  ///< on CUDA
  c10::DeviceType device = c10::kCUDA;     ///< where; the kernels' stand-ins run on any

  static FusionOptions none() {
    return {.batch_norm = false,
            .bias_relu = false,
            .column_sums = false,
            .convolutions = false,
            .cross_entropy = false,
            .cudnn_choice = false,
            .few_channels = false,
            .layer_norm = false,
            .max_pool = false,
            .norm_pool = false,
            .pointwise = false,
            .updates = false,
            .batch_casts = false,
            .memsets = false,
            .side_stream = false,
            .keep_copies = false,
            .recompute = Recompute::kNever};
  }
};

}  // namespace tensorpack
