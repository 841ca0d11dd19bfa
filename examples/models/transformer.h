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
  /// GELU by its approximation with tanh, which GPT-2 was trained with.
  bool tanh_gelu = false;
};

/// A Transformer over words in the form of GPT-2, which has 124,439,808 parameters in its smallest
/// size: the next word's logits [N, T, vocabulary] for each of [N, T] words, T no more than the
/// context.
inline Tensor transformer(const Tensor& words, const TransformerOptions& options = {}) {
  const int64_t width = options.features;
  auto linear = [](const std::string& name, const Tensor& x, int64_t units) {
    return Linear(name, x, {.units = units, .kernel_init = init::normal(0.02)});
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
    const Tensor hidden = torch::gelu(linear("expand", LayerNorm("norm2", l), 4 * width),
                                      options.tanh_gelu ? "tanh" : "none");
    l = l + Dropout("drop2", linear("contract", hidden, width), {.rate = options.dropout});
  }
  // The words' vectors serve as the last layer's weights, too.
  l = LayerNorm("norm", l);
  VariableScope scope("words", Reuse::kReuse);
  return torch::linear(l, get_variable("W", {options.vocabulary, width}));
}

/// What Hugging Face calls the variables in its files of GPT-2. There, queries, keys and values are
/// one matrix, and matrices lie the other way round.
inline NameMap gpt2_names() {
  return {
      .rules = {{"attention/q/W$", "attn.c_attn.weight", {true, 0, 3}},
                {"attention/k/W$", "attn.c_attn.weight", {true, 1, 3}},
                {"attention/v/W$", "attn.c_attn.weight", {true, 2, 3}},
                {"attention/q/b$", "attn.c_attn.bias", {false, 0, 3}},
                {"attention/k/b$", "attn.c_attn.bias", {false, 1, 3}},
                {"attention/v/b$", "attn.c_attn.bias", {false, 2, 3}},
                {"attention/out/W$", "attn.c_proj.weight", {.transposed = true}},
                {"attention/out/b$", "attn.c_proj.bias"},
                {"expand/W$", "mlp.c_fc.weight", {.transposed = true}},
                {"expand/b$", "mlp.c_fc.bias"},
                {"contract/W$", "mlp.c_proj.weight", {.transposed = true}},
                {"contract/b$", "mlp.c_proj.bias"},
                {"^words/W$", "wte.weight"},
                {"^positions$", "wpe.weight"},
                {"norm(\\d)/", "ln_$1."},
                {"^norm/", "ln_f."},
                {"gamma$", "weight"},
                {"beta$", "bias"},
                {"^block(\\d+)/", "h.$1."}},
      .ignored = {"\\.attn\\.(masked_)?bias$"},  // the mask of causal attention
  };
}

}  // namespace tensorpack::examples
