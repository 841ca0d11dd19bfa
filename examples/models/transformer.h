// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/tensorpack.h"

namespace tensorpack::examples {

struct TransformerOptions {
  int64_t vocabulary = 256;
  int64_t context = 64;
  int64_t features = 64;
  int64_t heads = 4;
  int64_t layers = 2;
  double dropout = 0.1;
};

/// A Transformer over words in the form of GPT-2, which has 124,439,808 parameters in its smallest
/// size: the next word's logits [N, T, vocabulary] for each of [N, T] words, T no more than the
/// context.
inline Tensor transformer(const Tensor& words, const TransformerOptions& options = {}) {
  const int64_t width = options.features;
  auto linear = [](const std::string& name, const Tensor& x, int64_t units) {
    return FullyConnected(name, x.flatten(0, 1),
                          {.units = units, .kernel_init = init::normal(0.02)})
        .view({x.size(0), x.size(1), units});
  };
  const Tensor positions = get_variable("positions", {options.context, width}, init::normal(0.01));
  Tensor l =
      Embedding("words", words,
                {.vocabulary = options.vocabulary, .features = width, .init = init::normal(0.02)}) +
      positions.narrow(0, 0, words.size(1));
  for (int64_t k = 0; k < options.layers; ++k) {
    VariableScope scope("block" + std::to_string(k));
    const Tensor attention =
        MultiHeadAttention("attention", LayerNorm("norm1", l),
                           {.heads = options.heads, .causal = true, .dropout = options.dropout});
    l = l + Dropout("drop1", attention, {.rate = options.dropout});
    const Tensor hidden = torch::gelu(linear("expand", LayerNorm("norm2", l), 4 * width));
    l = l + Dropout("drop2", linear("contract", hidden, width), {.rate = options.dropout});
  }
  // The words' vectors serve as the last layer's weights, too.
  l = LayerNorm("norm", l);
  VariableScope scope("words", Reuse::kReuse);
  return torch::linear(l, get_variable("W", {options.vocabulary, width}));
}

}  // namespace tensorpack::examples
