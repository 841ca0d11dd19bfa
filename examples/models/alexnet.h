// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/tensorpack.h"

namespace tensorpack::examples {

/// AlexNet in its one-tower form (Krizhevsky, 2014) on [N, 3, 224, 224]: 61,100,840 parameters.
inline Tensor alexnet(const Tensor& image, int64_t classes = 1000) {
  ArgScope conv(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
  ArgScope fc(FullyConnectedOptions{.units = 4096, .activation = torch::relu});
  const MaxPoolingOptions overlapping{.strides = Size2D(2)};
  Tensor l = Conv2D("conv1", image,
                    {.filters = 64, .kernel_size = 11, .strides = 4, .padding = Padding::of(2)});
  l = MaxPooling("pool1", l, 3, overlapping);
  l = Conv2D("conv2", l, {.filters = 192, .kernel_size = 5});
  l = MaxPooling("pool2", l, 3, overlapping);
  l = Conv2D("conv3", l, {.filters = 384});
  l = Conv2D("conv4", l, {.filters = 256});
  l = Conv2D("conv5", l, {.filters = 256});
  l = MaxPooling("pool5", l, 3, overlapping);
  l = FullyConnected("fc6", Dropout("drop5", l), {});
  l = FullyConnected("fc7", Dropout("drop6", l), {});
  return FullyConnected("fc8", l, {.units = classes, .activation = Activation()});
}

}  // namespace tensorpack::examples
