// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/tensorpack.h"

namespace tensorpack::examples {

/// VGG16 (Simonyan and Zisserman, 2014) on [N, 3, 224, 224]: 138,357,544 parameters.
inline Tensor vgg16(const Tensor& image, int64_t classes = 1000) {
  ArgScope conv(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
  ArgScope fc(FullyConnectedOptions{.units = 4096, .activation = torch::relu});
  const std::vector<std::pair<int, int64_t>> groups = {
      {2, 64}, {2, 128}, {3, 256}, {3, 512}, {3, 512}};
  Tensor l = image;
  int group = 0;
  for (const auto& [layers, filters] : groups) {
    VariableScope scope("group" + std::to_string(++group));
    for (int k = 1; k <= layers; ++k) {
      l = Conv2D("conv" + std::to_string(k), l, {.filters = filters});
    }
    l = MaxPooling("pool", l, 2);
  }
  l = Dropout("drop6", FullyConnected("fc6", l, {}));
  l = Dropout("drop7", FullyConnected("fc7", l, {}));
  return FullyConnected("fc8", l, {.units = classes, .activation = Activation()});
}

}  // namespace tensorpack::examples
