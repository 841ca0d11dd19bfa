// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/nonlinear.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

at::Tensor PReLU(const std::string& name, const at::Tensor& input, PReLUOptions call_options) {
  return run_layer("PReLU", name, input, [&] {
    const PReLUOptions options = with_arg_scope(call_options);
    const at::Tensor alpha =
        get_variable("alpha", {}, init::constant(options.init.value_or(0.001)));
    return 0.5 * ((1 + alpha) * input + (1 - alpha) * input.abs());
  });
}

at::Tensor Maxout(const std::string& name, const at::Tensor& input, int64_t units) {
  return run_layer("Maxout", name, input, [&] {
    detail::check_rank("Maxout", input, {2, 4}, "[N, C] or [N, C, H, W]");
    TP_CHECK(units > 0 && input.size(1) % units == 0, detail::layer_place("Maxout"),
             "{} units do not divide {}. Choose a divisor.", units,
             counted(input.size(1), "channel"));
    std::vector<int64_t> shape = input.sizes().vec();
    shape[1] /= units;
    shape.insert(shape.begin() + 2, units);
    return at::amax(input.reshape(shape), 2);
  });
}

at::Tensor ConcatWith(const std::string& name, const at::Tensor& input,
                      std::vector<at::Tensor> tensors, int64_t dim) {
  return run_layer("ConcatWith", name, input, [&] {
    tensors.insert(tensors.begin(), input);
    return at::cat(tensors, dim);
  });
}

}  // namespace tensorpack
