// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/tensorpack.h"

namespace tensorpack::examples {

/// LeNet as Caffe trains it on [N, 1, 28, 28]: 431,080 parameters.
inline Tensor lenet(const Tensor& image, int64_t classes = 10) {
  ArgScope conv(Conv2DOptions{.kernel_size = 5, .padding = Padding::valid()});
  Tensor l = MaxPooling("pool1", Conv2D("conv1", image, {.filters = 20}), 2);
  l = MaxPooling("pool2", Conv2D("conv2", l, {.filters = 50}), 2);
  l = FullyConnected("fc1", l, {.units = 500, .activation = torch::relu});
  return FullyConnected("fc2", l, {.units = classes});
}

}  // namespace tensorpack::examples
