// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"

namespace tensorpack::bench {

/// The shapes of ResNet-50's 161 weights, 25,557,032 numbers.
inline std::vector<Shape> resnet50_shapes() {
  std::vector<Shape> shapes;
  auto convolution = [&](int64_t in, int64_t out, int64_t kernel) {
    shapes.insert(shapes.end(), {{out, in, kernel, kernel}, {out}, {out}});
  };
  convolution(3, 64, 7);
  int64_t in = 64;
  for (int64_t stage = 0, width = 64; stage < 4; ++stage, width *= 2) {
    const int64_t blocks = std::array<int64_t, 4>{3, 4, 6, 3}[stage];
    for (int64_t block = 0; block < blocks; ++block) {
      if (block == 0) convolution(in, width * 4, 1);
      convolution(in, width, 1);
      convolution(width, width, 3);
      convolution(width, width * 4, 1);
      in = width * 4;
    }
  }
  shapes.insert(shapes.end(), {{1000, 2048}, {1000}});
  return shapes;
}

}  // namespace tensorpack::bench
