// SPDX-License-Identifier: Apache-2.0
// The two networks of a convolutional GAN.
#pragma once

#include "tensorpack/tensorpack.h"

namespace gan {

using namespace tensorpack;  // NOLINT: an example

/// Features of the noise.
inline constexpr int64_t kNoise = 64;

/// Images [N, 28, 28] from noise [N, kNoise].
inline Tensor generator(const Tensor& z) {
  VariableScope scope("gen");
  ArgScope doubling(Conv2DTransposeOptions{.kernel_size = 4,
                                           .strides = 2,
                                           .padding = Padding::of(1),
                                           .kernel_init = init::normal(0.02)});
  Tensor l = FullyConnected("fc", z, {.units = 64 * 7 * 7}).view({-1, 64, 7, 7});
  l = Conv2DTranspose("deconv1", BNReLU("bn0", l), {.filters = 32});
  l = Conv2DTranspose("deconv2", BNReLU("bn1", l), {.filters = 1});
  return named("image", torch::sigmoid(l).squeeze(1));
}

/// Scores [N] of images [N, 28, 28]. Called twice, for real images and for others; one set of
/// weights.
inline Tensor discriminator(const Tensor& image) {
  VariableScope scope("discrim", Reuse::kAuto);
  const auto leaky = [](const Tensor& x) { return torch::leaky_relu(x, 0.2); };
  ArgScope convolutions(Conv2DOptions{.kernel_size = 5, .strides = 2, .padding = Padding::of(2)});
  Tensor l = Conv2D("conv0", image.unsqueeze(1) * 2 - 1, {.filters = 32, .activation = leaky});
  l = leaky(BatchNorm("bn1", Conv2D("conv1", l, {.filters = 64})));
  return FullyConnected("fc", l, {.units = 1}).squeeze(1);
}

}  // namespace gan
