// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {
namespace {

struct Projection {
  at::Tensor weight = {};
  at::Tensor bias = {};  // undefined without
};

Projection projection(const std::string& name, int64_t features, int64_t inputs,
                      const MultiHeadAttentionOptions& options) {
  VariableScope scope(name);
  Projection p{
      get_variable("W", {features, inputs}, options.kernel_init.value_or(init::xavier_uniform()))};
  if (options.use_bias.value_or(true)) p.bias = get_variable("b", {features}, init::zeros());
  return p;
}

at::Tensor project(const at::Tensor& input, const Projection& p) {
  return at::linear(input, p.weight, p.bias);
}

// Several projections of one input as one product of matrices, which is faster.
std::vector<at::Tensor> project_together(const at::Tensor& input,
                                         const std::vector<Projection>& projections) {
  std::vector<at::Tensor> weights, biases;
  for (const Projection& p : projections) {
    weights.push_back(p.weight);
    if (p.bias.defined()) biases.push_back(p.bias);
  }
  const at::Tensor all =
      at::linear(input, at::cat(weights), biases.empty() ? at::Tensor() : at::cat(biases));
  return all.chunk(static_cast<int64_t>(projections.size()), -1);
}

// [N, T, E] to [N, heads, T, E / heads].
at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

at::Tensor hide(const at::Tensor& scores, const at::Tensor& visible) {
  return scores.masked_fill(visible.logical_not(), -std::numeric_limits<double>::infinity());
}

// On [N, heads, T, E / heads].
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const MultiHeadAttentionOptions& options) {
  const bool causal = options.causal.value_or(false);
  const double dropout = is_training() ? options.dropout.value_or(0) : 0;
  const bool has_mask = options.mask && options.mask->defined();
  if (!has_mask) {
    if (auto attended = fused_attention(q, k, v, dropout, causal)) return *attended;
  }
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  at::Tensor scores = at::matmul(q * scale, k.transpose(2, 3));
  if (has_mask) {
    const bool is_visibility = options.mask->scalar_type() == at::kBool;
    scores = is_visibility ? hide(scores, *options.mask) : scores + *options.mask;
  }
  if (causal) {
    const auto booleans = q.options().dtype(at::kBool);
    scores = hide(scores, at::ones({q.size(2), k.size(2)}, booleans).tril());
  }
  return at::matmul(at::dropout(at::softmax(scores, -1), dropout, dropout > 0), v);
}

}  // namespace

at::Tensor MultiHeadAttention(const std::string& name, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value,
                              MultiHeadAttentionOptions call_options) {
  return run_layer("MultiHeadAttention", name, query, [&] {
    const MultiHeadAttentionOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("MultiHeadAttention");
    for (const at::Tensor& input : {query, key, value}) {
      detail::check_rank("MultiHeadAttention", input, {3}, "[N, T, E]");
    }
    const int64_t features = query.size(2);
    const int64_t heads = options.heads.value_or(0);
    TP_CHECK(heads > 0 && features % heads == 0, where,
             "{} heads do not divide {}. Set .heads to a divisor.", heads,
             counted(features, "feature"));
    TP_CHECK(key.size(1) == value.size(1), where,
             "the keys have {} and the values {}. Pass as many.", counted(key.size(1), "token"),
             value.size(1));

    const std::vector<Projection> projections = {projection("q", features, query.size(2), options),
                                                 projection("k", features, key.size(2), options),
                                                 projection("v", features, value.size(2), options)};
    const bool attends_to_itself = query.is_same(key) && key.is_same(value);
    const std::vector<at::Tensor> qkv =
        attends_to_itself
            ? project_together(query, projections)
            : std::vector<at::Tensor>{project(query, projections[0]), project(key, projections[1]),
                                      project(value, projections[2])};
    const at::Tensor attended = attend(split_heads(qkv[0], heads), split_heads(qkv[1], heads),
                                       split_heads(qkv[2], heads), options);
    const at::Tensor mixed = attended.transpose(1, 2).reshape(query.sizes());
    return project(mixed, projection("out", features, features, options));
  });
}

at::Tensor MultiHeadAttention(const std::string& name, const at::Tensor& input,
                              MultiHeadAttentionOptions options) {
  return MultiHeadAttention(name, input, input, input, std::move(options));
}

}  // namespace tensorpack
