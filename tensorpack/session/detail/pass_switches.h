// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "tensorpack/session/fusion.h"

namespace tensorpack {

/// Recompute::kSome: of what its function holds a step holds so much. Inputs and variables come to
/// it, so that a training as a whole takes a tenth less.
constexpr double kSomeShare = 0.87;
/// The least memory of a function of which some is saved, where nothing is known of the device.
constexpr int64_t kMuchMemory = int64_t{1} << 30;

/// Switches of single passes over a program, and what they depend on: on CUDA all of these, on the
/// CPU convolutions and max_pool. For debugging: names and meanings change without notice.
struct PassSwitches {
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
  bool keep_copies = false;   ///< see SessionOptions::keep_weight_copies
  Recompute recompute = Recompute::kSome;
  c10::DeviceType device = c10::kCUDA;  ///< where; the kernels' stand-ins run on any

  static PassSwitches none() {
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
  /// What gives libtorch's bits on `device`.
  static PassSwitches exact(c10::DeviceType device) {
    PassSwitches switches = none();
    switches.max_pool = device == c10::kCPU;  // on CUDA its gradient adds up in another order
    switches.updates = true;
    switches.batch_casts = true;
    switches.memsets = true;
    switches.side_stream = true;
    return switches;
  }
};

}  // namespace tensorpack
