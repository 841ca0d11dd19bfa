// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/embedding.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor Embedding(const std::string& name, const at::Tensor& ids,
                     EmbeddingOptions call_options) {
  return run_layer("Embedding", name, ids, [&] {
    const EmbeddingOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("Embedding");
    const int64_t vocabulary = options.vocabulary.value_or(0);
    const int64_t features = options.features.value_or(0);
    TP_CHECK(vocabulary > 0 && features > 0, where,
             "vocabulary {} and features {} must be 1 or more.", vocabulary, features);
    TP_CHECK(ids.scalar_type() == at::kLong || ids.scalar_type() == at::kInt, where,
             "the ids are {}. Pass int64 or int32.", c10::toString(ids.scalar_type()));
    return at::embedding(
        get_variable("W", {vocabulary, features}, options.init.value_or(init::normal(1))), ids);
  });
}

}  // namespace tensorpack
