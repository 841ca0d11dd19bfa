// SPDX-License-Identifier: Apache-2.0
// Residual networks (He et al., 2015).
#pragma once

#include <array>

#include "tensorpack/tensorpack.h"

namespace tensorpack::examples {

namespace resnet {

inline Tensor conv_bn(const std::string& name, const Tensor& input, int64_t filters, int64_t kernel,
                      int64_t stride) {
  const Tensor l = Conv2D(name, input,
                          {.filters = filters,
                           .kernel_size = kernel,
                           .strides = stride,
                           .padding = Padding::of(kernel / 2),
                           .use_bias = false});
  return BatchNorm(name + "_bn", l);
}

inline Tensor shortcut(const Tensor& input, int64_t filters, int64_t stride) {
  if (input.size(1) == filters && stride == 1) return input;
  return conv_bn("shortcut", input, filters, 1, stride);
}

inline Tensor basic_block(const Tensor& input, int64_t width, int64_t stride) {
  Tensor l = torch::relu(conv_bn("conv1", input, width, 3, stride));
  l = conv_bn("conv2", l, width, 3, 1);
  return torch::relu(l + shortcut(input, width, stride));
}

inline Tensor bottleneck(const Tensor& input, int64_t width, int64_t stride) {
  Tensor l = torch::relu(conv_bn("conv1", input, width, 1, 1));
  l = torch::relu(conv_bn("conv2", l, width, 3, stride));
  l = conv_bn("conv3", l, width * 4, 1, 1);
  return torch::relu(l + shortcut(input, width * 4, stride));
}

using Block = Tensor (*)(const Tensor& input, int64_t width, int64_t stride);

inline Tensor imagenet(const Tensor& image, Block block, std::array<int, 4> blocks, int64_t classes,
                       int64_t width = 64) {
  Tensor l = torch::relu(conv_bn("conv0", image, width, 7, 2));
  l = MaxPooling("pool0", l, 3, {.strides = Size2D(2), .padding = Padding::of(1)});
  for (int stage = 0; stage < 4; ++stage) {
    for (int k = 0; k < blocks[stage]; ++k) {
      VariableScope scope("group" + std::to_string(stage) + "/block" + std::to_string(k));
      l = block(l, width << stage, k == 0 && stage > 0 ? 2 : 1);
    }
  }
  return FullyConnected("linear", GlobalAvgPooling("gap", l), {.units = classes});
}

}  // namespace resnet

/// On [N, 3, 224, 224]: 11,689,512 parameters.
inline Tensor resnet18(const Tensor& image, int64_t classes = 1000) {
  return resnet::imagenet(image, resnet::basic_block, {2, 2, 2, 2}, classes);
}

/// On [N, 3, 224, 224], with the stride in the 3x3 convolutions: 25,557,032 parameters.
inline Tensor resnet50(const Tensor& image, int64_t classes = 1000) {
  return resnet::imagenet(image, resnet::bottleneck, {3, 4, 6, 3}, classes);
}

/// What torchvision calls the variables of resnet18() and resnet50(): with these names its files
/// can be loaded, and ours be loaded there.
inline NameMap torchvision_names() {
  return {
      .rules = {{"^conv0(_bn)?/", "conv1$1/"},  // the first layer: conv1 and bn1
                {"^group0/", "layer1/"},
                {"^group1/", "layer2/"},
                {"^group2/", "layer3/"},
                {"^group3/", "layer4/"},
                {"block(\\d+)/", "$1/"},
                {"shortcut/", "downsample/0/"},
                {"shortcut_bn/", "downsample/1/"},
                {"conv(\\d)_bn/", "bn$1/"},
                {"^linear/", "fc/"},
                {"(W|gamma)$", "weight"},
                {"(b|beta)$", "bias"},
                {"mean/EMA$", "running_mean"},
                {"variance/EMA$", "running_var"},
                {"/", "."}},
      .ignored = {"num_batches_tracked$"},
  };
}

/// The network of depth 6n + 2 on [N, 3, 32, 32], whose shortcuts have no parameters: 269,722 for
/// n = 3, 853,018 for n = 9.
inline Tensor resnet_cifar(const Tensor& image, int n, int64_t classes = 10) {
  Tensor l = torch::relu(resnet::conv_bn("conv0", image, 16, 3, 1));
  for (int stage = 0; stage < 3; ++stage) {
    for (int k = 0; k < n; ++k) {
      VariableScope scope("group" + std::to_string(stage) + "/block" + std::to_string(k));
      const int64_t width = int64_t{16} << stage;
      const int64_t stride = k == 0 && stage > 0 ? 2 : 1;
      Tensor skip = l;
      if (stride == 2) {  // every second pixel, new channels filled with zeros
        skip = torch::constant_pad_nd(AvgPooling("shortcut", l, 1, {.strides = Size2D(2)}),
                                      {0, 0, 0, 0, width / 4, width / 4});
      }
      Tensor y = torch::relu(resnet::conv_bn("conv1", l, width, 3, stride));
      l = torch::relu(resnet::conv_bn("conv2", y, width, 3, 1) + skip);
    }
  }
  return FullyConnected("linear", GlobalAvgPooling("gap", l), {.units = classes});
}

}  // namespace tensorpack::examples
