// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack {

/// Which operators of a program become fused kernels.
enum class Fusion {
  kNone,     ///< none: libtorch's operators run as they were recorded
  kExact,    ///< those that give libtorch's bits
  kDefault,  ///< all; they round differently from libtorch's, by as much as those round
};

/// Which activations of a training step are recomputed in the backward pass, on CUDA. The step then
/// holds less memory and takes longer. The bits are the same.
enum class Recompute {
  kNever,
  kIfNeeded,  ///< all that are cheap, where the device has no room for the step otherwise
  /// Those that kernels compute which run anyway, so that a training takes a tenth less memory than
  /// the function by itself would, if that is more than a sixteenth of the device. Otherwise as
  /// kIfNeeded.
  kSome,
  kAlways,
};

}  // namespace tensorpack
