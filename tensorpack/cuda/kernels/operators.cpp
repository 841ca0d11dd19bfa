// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/operators.h"

#include <torch/library.h>

#include <set>
#include <string>

#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/batch_norm_pool.h"
#include "tensorpack/cuda/kernels/bias_relu.h"
#include "tensorpack/cuda/kernels/cast.h"
#include "tensorpack/cuda/kernels/column_sum.h"
#include "tensorpack/cuda/kernels/concat_sum.h"
#include "tensorpack/cuda/kernels/cross_entropy.h"
#include "tensorpack/cuda/kernels/embedding_gradient.h"
#include "tensorpack/cuda/kernels/filter_gradient.h"
#include "tensorpack/cuda/kernels/fold_image.h"
#include "tensorpack/cuda/kernels/kernel_list.h"
#include "tensorpack/cuda/kernels/layer_norm.h"
#include "tensorpack/cuda/kernels/max_pool.h"
#include "tensorpack/cuda/kernels/pointwise.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::cuda {
namespace {

// The kernels where they can run, libtorch's operators elsewhere.
template <typename Fused, typename Unfused>
auto choose(const at::Tensor& input, Fused fused, Unfused unfused) {
  if (const Launcher* launcher = launcher_for(input)) {
    try {
      return fused(*launcher);
    } catch (const Error& error) {
      logging::warning_once("Unfused operators are used: {}", error.what());
    }
  }
  return unfused();
}

c10::optional<BatchNormStatistics> known(const MaybeTensor& mean, const MaybeTensor& invstd) {
  if (!mean) return c10::nullopt;
  return BatchNormStatistics{*mean, *invstd};
}

BatchNormResults run_batch_norm_act(const at::Tensor& input, const MaybeTensor& weight,
                                    const MaybeTensor& bias, const MaybeTensor& running_mean,
                                    const MaybeTensor& running_var, const MaybeTensor& residual,
                                    const at::Tensor& counters, double momentum, double epsilon,
                                    bool relu, bool keep_bits, const MaybeTensor& residual_weight,
                                    const MaybeTensor& residual_bias,
                                    const MaybeTensor& residual_mean,
                                    const MaybeTensor& residual_invstd) {
  const BatchNormArguments arguments{.input = input,
                                     .weight = weight,
                                     .bias = bias,
                                     .running_mean = running_mean,
                                     .running_var = running_var,
                                     .residual = residual,
                                     .residual_statistics = known(residual_mean, residual_invstd),
                                     .residual_weight = residual_weight,
                                     .residual_bias = residual_bias,
                                     .momentum = momentum,
                                     .epsilon = epsilon,
                                     .relu = relu,
                                     .keep_bits = keep_bits};
  return choose(
      input,
      [&](const Launcher& launcher) { return batch_norm_act(arguments, counters, launcher); },
      [&] { return batch_norm_act_unfused(arguments); });
}

at::Tensor run_batch_norm_act_again(const at::Tensor& input, const MaybeTensor& weight,
                                    const MaybeTensor& bias, const MaybeTensor& residual,
                                    const at::Tensor& mean, const at::Tensor& invstd, bool relu,
                                    const MaybeTensor& residual_weight,
                                    const MaybeTensor& residual_bias,
                                    const MaybeTensor& residual_mean,
                                    const MaybeTensor& residual_invstd) {
  const BatchNormArguments arguments{.input = input,
                                     .weight = weight,
                                     .bias = bias,
                                     .residual = residual,
                                     .residual_statistics = known(residual_mean, residual_invstd),
                                     .residual_weight = residual_weight,
                                     .residual_bias = residual_bias,
                                     .relu = relu};
  return choose(
      input,
      [&](const Launcher& launcher) {
        return batch_norm_act_again(arguments, {mean, invstd}, launcher);
      },
      [&] {
        return batch_norm_act_again_unfused(arguments, {mean, invstd});
      });
}

BatchNormGradients run_batch_norm_act_backward(const at::Tensor& grad, const MaybeTensor& other,
                                               const at::Tensor& input, const MaybeTensor& output,
                                               const MaybeTensor& weight, const MaybeTensor& bias,
                                               const at::Tensor& mean, const at::Tensor& invstd,
                                               const at::Tensor& counters, int64_t mask,
                                               int64_t keeps) {
  const BatchNormBackwardArguments arguments{.grad = grad,
                                             .other = other,
                                             .input = input,
                                             .output = output,
                                             .weight = weight,
                                             .bias = bias,
                                             .mean = mean,
                                             .invstd = invstd,
                                             .mask = static_cast<ReluMask>(mask),
                                             .keeps = static_cast<NormKeeps>(keeps)};
  return choose(
      input,
      [&](const Launcher& launcher) {
        return batch_norm_act_backward(arguments, counters, launcher);
      },
      [&] { return batch_norm_act_backward_unfused(arguments); });
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> run_batch_norm_pool(
    const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
    const MaybeTensor& running_mean, const MaybeTensor& running_var, const at::Tensor& counters,
    double momentum, double epsilon, at::IntArrayRef kernel, at::IntArrayRef stride,
    at::IntArrayRef padding) {
  const BatchNormArguments arguments{.input = input,
                                     .weight = weight,
                                     .bias = bias,
                                     .running_mean = running_mean,
                                     .running_var = running_var,
                                     .momentum = momentum,
                                     .epsilon = epsilon};
  const PoolWindow window{kernel.vec(), stride.vec(), padding.vec()};
  const BatchNormPoolResults results = choose(
      input,
      [&](const Launcher& launcher) {
        return batch_norm_pool(arguments, window, counters, launcher);
      },
      [&] { return batch_norm_pool_unfused(arguments, window); });
  return {results.y, results.statistics.mean, results.statistics.invstd, results.taken,
          results.places};
}

BatchNormPoolGradients run_batch_norm_pool_backward(
    const at::Tensor& grad, const MaybeTensor& other, const at::Tensor& input,
    const at::Tensor& taken, const at::Tensor& places, const MaybeTensor& weight,
    const MaybeTensor& bias, const at::Tensor& mean, const at::Tensor& invstd,
    const at::Tensor& counters, at::IntArrayRef kernel, at::IntArrayRef stride,
    at::IntArrayRef padding) {
  const BatchNormPoolBackwardArguments arguments{.grad = grad,
                                                 .other = other,
                                                 .input = input,
                                                 .taken = taken,
                                                 .places = places,
                                                 .weight = weight,
                                                 .bias = bias,
                                                 .statistics = {mean, invstd}};
  const PoolWindow window{kernel.vec(), stride.vec(), padding.vec()};
  return choose(
      input,
      [&](const Launcher& launcher) {
        return batch_norm_pool_backward(arguments, window, counters, launcher);
      },
      [&] { return batch_norm_pool_backward_unfused(arguments, window); });
}

std::tuple<at::Tensor, at::Tensor> run_batch_norm_statistics(const at::Tensor& input,
                                                             const MaybeTensor& running_mean,
                                                             const MaybeTensor& running_var,
                                                             const at::Tensor& counters,
                                                             double momentum, double epsilon) {
  const BatchNormArguments arguments{.input = input,
                                     .running_mean = running_mean,
                                     .running_var = running_var,
                                     .momentum = momentum,
                                     .epsilon = epsilon};
  const BatchNormStatistics found = choose(
      input,
      [&](const Launcher& launcher) {
        return batch_norm_statistics(arguments, counters, launcher);
      },
      [&] { return batch_norm_statistics_unfused(arguments); });
  return {found.mean, found.invstd};
}

at::Tensor run_bias_relu(const at::Tensor& input, const at::Tensor& bias) {
  return choose(
      input, [&](const Launcher& launcher) { return bias_relu(input, bias, launcher); },
      [&] { return bias_relu_unfused(input, bias); });
}

std::tuple<at::Tensor, at::Tensor> run_bias_relu_backward(const at::Tensor& grad,
                                                          const at::Tensor& output,
                                                          const at::Tensor& counters,
                                                          at::ScalarType type) {
  return choose(
      output,
      [&](const Launcher& launcher) {
        return bias_relu_backward(grad, output, counters, type, launcher);
      },
      [&] { return bias_relu_backward_unfused(grad, output, type); });
}

std::vector<at::Tensor> run_cast_together(at::TensorList tensors, at::ScalarType dtype,
                                          at::IntArrayRef parts) {
  const CastArguments arguments{.tensors = tensors.vec(), .type = dtype, .parts = parts.vec()};
  if (!fits_cast(arguments)) return cast_unfused(arguments);
  return choose(
      tensors[0], [&](const Launcher& launcher) { return cast(arguments, launcher); },
      [&] { return cast_unfused(arguments); });
}

at::Tensor run_column_sum(const at::Tensor& input, const at::Tensor& counters, bool keep_rows,
                          at::ScalarType type) {
  return choose(
      input,
      [&](const Launcher& launcher) {
        return column_sum(input, counters, keep_rows, type, launcher);
      },
      [&] { return column_sum_unfused(input, keep_rows, type); });
}

std::tuple<at::Tensor, at::Tensor> run_concat_sum(at::TensorList parts, const at::Tensor& counters,
                                                  bool keep_rows, at::ScalarType type) {
  return choose(
      parts[0],
      [&](const Launcher& launcher) {
        return concat_sum(parts.vec(), counters, keep_rows, type, launcher);
      },
      [&] { return concat_sum_unfused(parts.vec(), keep_rows, type); });
}

CrossEntropyResults run_cross_entropy(const at::Tensor& logits, const at::Tensor& target,
                                      const at::Tensor& loss_grad, bool mean, int64_t ignore_index,
                                      at::ScalarType grad_type) {
  const CrossEntropyArguments arguments{.logits = logits,
                                        .target = target,
                                        .loss_grad = loss_grad,
                                        .mean = mean,
                                        .ignore_index = ignore_index,
                                        .grad_type = grad_type};
  return choose(
      logits, [&](const Launcher& launcher) { return cross_entropy(arguments, launcher); },
      [&] { return cross_entropy_unfused(arguments); });
}

at::Tensor run_embedding_gradient(const at::Tensor& grad, const at::Tensor& words,
                                  const at::Tensor& other, int64_t padding_idx) {
  const EmbeddingGradientArguments arguments{
      .grad = grad, .words = words, .other = other, .padding_idx = padding_idx};
  return choose(
      grad, [&](const Launcher& launcher) { return embedding_gradient(arguments, launcher); },
      [&] { return embedding_gradient_unfused(arguments); });
}

std::tuple<at::Tensor, at::Tensor> run_filter_gradient(
    const at::Tensor& grad, const at::Tensor& image, at::IntArrayRef size, at::IntArrayRef strides,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool bias) {
  const FilterGradient of{.size = size.vec(),
                          .strides = strides.vec(),
                          .stride = stride.vec(),
                          .padding = padding.vec(),
                          .dilation = dilation.vec(),
                          .bias = bias};
  return choose(
      grad, [&](const Launcher& launcher) { return filter_gradient(grad, image, of, launcher); },
      [&] { return filter_gradient_unfused(grad, image, of); });
}

at::Tensor run_fold_image(const at::Tensor& image, at::IntArrayRef padding, at::IntArrayRef size,
                          int64_t channels) {
  const ImageFold fold{padding.vec(), size.vec(), channels};
  return choose(
      image, [&](const Launcher& launcher) { return fold_image(image, fold, launcher); },
      [&] { return fold_image_unfused(image, fold); });
}

std::tuple<at::Tensor, at::Tensor> run_max_pool(const at::Tensor& input, at::IntArrayRef kernel,
                                                at::IntArrayRef stride, at::IntArrayRef padding) {
  const PoolWindow window{kernel.vec(), stride.vec(), padding.vec()};
  return choose(
      input, [&](const Launcher& launcher) { return max_pool(input, window, launcher); },
      [&] { return max_pool_unfused(input, window); });
}

at::Tensor run_max_pool_backward(const at::Tensor& grad, const at::Tensor& places,
                                 at::IntArrayRef input_size, at::IntArrayRef kernel,
                                 at::IntArrayRef stride, at::IntArrayRef padding) {
  const PoolWindow window{kernel.vec(), stride.vec(), padding.vec()};
  return choose(
      grad,
      [&](const Launcher& launcher) {
        return max_pool_backward(grad, places, input_size, window, launcher);
      },
      [&] { return max_pool_backward_unfused(grad, places, input_size, window); });
}

LayerNormResults run_layer_norm(const at::Tensor& input, const MaybeTensor& residual,
                                const MaybeTensor& weight, const MaybeTensor& bias, double epsilon,
                                at::ScalarType type, at::IntArrayRef size) {
  const LayerNormArguments arguments{.input = input,
                                     .residual = residual,
                                     .weight = weight,
                                     .bias = bias,
                                     .epsilon = epsilon,
                                     .type = type,
                                     .size = size.vec()};
  return choose(
      input, [&](const Launcher& launcher) { return layer_norm(arguments, launcher); },
      [&] { return layer_norm_unfused(arguments); });
}

LayerNormGradients run_layer_norm_backward(const at::Tensor& grad, const at::Tensor& input,
                                           const MaybeTensor& weight, const at::Tensor& mean,
                                           const at::Tensor& rstd, const MaybeTensor& other,
                                           c10::optional<at::ScalarType> copy,
                                           c10::optional<at::ScalarType> sum, bool keep_rows) {
  const LayerNormBackwardArguments arguments{.grad = grad,
                                             .input = input,
                                             .weight = weight,
                                             .mean = mean,
                                             .rstd = rstd,
                                             .other = other,
                                             .copy = copy,
                                             .sum = sum,
                                             .keep_rows = keep_rows};
  return choose(
      input, [&](const Launcher& launcher) { return layer_norm_backward(arguments, launcher); },
      [&] { return layer_norm_backward_unfused(arguments); });
}

std::vector<at::Tensor> run_pointwise(at::TensorList inputs, c10::string_view text,
                                      at::IntArrayRef sizes, at::IntArrayRef strides) {
  const Formula formula = parse_formula(std::string(text), static_cast<int>(inputs.size()));
  const DenseLayout layout{sizes.vec(), strides.vec()};
  return choose(
      inputs[0],
      [&](const Launcher& launcher) { return pointwise(inputs.vec(), formula, layout, launcher); },
      [&] { return pointwise_unfused(inputs.vec(), formula, layout); });
}

std::vector<at::Tensor> run_pointwise_sum(at::TensorList inputs, const at::Tensor& counters,
                                          c10::string_view text, at::IntArrayRef sizes,
                                          at::IntArrayRef strides, int64_t columns,
                                          at::ScalarType type, at::IntArrayRef sum_sizes) {
  const Formula formula = parse_formula(std::string(text), static_cast<int>(inputs.size()));
  const DenseLayout layout{sizes.vec(), strides.vec()};
  const PointwiseSum sum{.columns = columns, .type = type, .sizes = sum_sizes.vec()};
  return choose(
      inputs[0],
      [&](const Launcher& launcher) {
        return pointwise_sum(inputs.vec(), counters, formula, layout, sum, launcher);
      },
      [&] { return pointwise_sum_unfused(inputs.vec(), formula, layout, sum); });
}

}  // namespace

bool launches_kernels(const c10::OperatorHandle& op) {
  static const std::set<std::string> names = {
      "adam_",
      "adam_and_copies_",
      "batch_norm_act",
      "batch_norm_act_again",
      "batch_norm_act_backward",
      "batch_norm_pool",
      "batch_norm_pool_backward",
      "batch_norm_statistics",
      "bias_relu",
      "bias_relu_backward",
      "cast_together",
      "column_sum",
      "concat_sum",
      "cross_entropy",
      "embedding_gradient",
      "filter_gradient",
      "fold_image",
      "layer_norm",
      "layer_norm_backward",
      "max_pool",
      "max_pool_backward",
      "pointwise",
      "pointwise_sum",
      "sgd_",
      "sgd_and_copies_",
  };
  const std::string name = op.operator_name().name;
  constexpr std::string_view kOurs = "tensorpack::";
  return name.starts_with(kOurs) && names.contains(name.substr(kOurs.size()));
}

c10::OperatorHandle batch_norm_act_operator() {
  return find_operator("tensorpack::batch_norm_act");
}
c10::OperatorHandle batch_norm_act_again_operator() {
  return find_operator("tensorpack::batch_norm_act_again");
}
c10::OperatorHandle batch_norm_act_backward_operator() {
  return find_operator("tensorpack::batch_norm_act_backward");
}
c10::OperatorHandle batch_norm_pool_operator() {
  return find_operator("tensorpack::batch_norm_pool");
}
c10::OperatorHandle batch_norm_pool_backward_operator() {
  return find_operator("tensorpack::batch_norm_pool_backward");
}
c10::OperatorHandle batch_norm_statistics_operator() {
  return find_operator("tensorpack::batch_norm_statistics");
}
c10::OperatorHandle bias_relu_operator() { return find_operator("tensorpack::bias_relu"); }
c10::OperatorHandle bias_relu_backward_operator() {
  return find_operator("tensorpack::bias_relu_backward");
}
c10::OperatorHandle cast_together_operator() { return find_operator("tensorpack::cast_together"); }
c10::OperatorHandle column_sum_operator() { return find_operator("tensorpack::column_sum"); }
c10::OperatorHandle concat_sum_operator() { return find_operator("tensorpack::concat_sum"); }
c10::OperatorHandle convolution_operator() { return find_operator("tensorpack::convolution"); }
c10::OperatorHandle convolution_backward_operator() {
  return find_operator("tensorpack::convolution_backward");
}
c10::OperatorHandle cross_entropy_operator() { return find_operator("tensorpack::cross_entropy"); }
c10::OperatorHandle embedding_gradient_operator() {
  return find_operator("tensorpack::embedding_gradient");
}
c10::OperatorHandle filter_gradient_operator() {
  return find_operator("tensorpack::filter_gradient");
}
c10::OperatorHandle fold_image_operator() { return find_operator("tensorpack::fold_image"); }
c10::OperatorHandle folded_convolution_operator() {
  return find_operator("tensorpack::folded_convolution");
}
c10::OperatorHandle folded_weight_gradient_operator() {
  return find_operator("tensorpack::folded_weight_gradient");
}
c10::OperatorHandle layer_norm_operator() { return find_operator("tensorpack::layer_norm"); }
c10::OperatorHandle layer_norm_backward_operator() {
  return find_operator("tensorpack::layer_norm_backward");
}
c10::OperatorHandle max_pool_operator() { return find_operator("tensorpack::max_pool"); }
c10::OperatorHandle max_pool_backward_operator() {
  return find_operator("tensorpack::max_pool_backward");
}
c10::OperatorHandle pointwise_operator() { return find_operator("tensorpack::pointwise"); }
c10::OperatorHandle pointwise_sum_operator() { return find_operator("tensorpack::pointwise_sum"); }

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "batch_norm_act(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, "
      "Tensor(b!)? running_var, Tensor? residual, Tensor counters, float momentum, float eps, "
      "bool relu, bool keep_bits, Tensor? residual_weight, Tensor? residual_bias, "
      "Tensor? residual_mean, Tensor? residual_invstd) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "batch_norm_act_again(Tensor input, Tensor? weight, Tensor? bias, Tensor? residual, "
      "Tensor mean, Tensor invstd, bool relu, Tensor? residual_weight, Tensor? residual_bias, "
      "Tensor? residual_mean, Tensor? residual_invstd) -> Tensor");
  library.def(
      "batch_norm_act_backward(Tensor grad, Tensor? other, Tensor input, Tensor? output, "
      "Tensor? weight, Tensor? bias, Tensor mean, Tensor invstd, Tensor counters, int mask, "
      "int keeps) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "batch_norm_pool(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!)? running_mean, "
      "Tensor(b!)? running_var, Tensor counters, float momentum, float eps, int[] kernel, "
      "int[] stride, int[] padding) -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "batch_norm_pool_backward(Tensor grad, Tensor? other, Tensor input, Tensor taken, "
      "Tensor places, Tensor? weight, Tensor? bias, Tensor mean, Tensor invstd, Tensor counters, "
      "int[] kernel, int[] stride, int[] padding) -> (Tensor, Tensor, Tensor)");
  library.def(
      "batch_norm_statistics(Tensor input, Tensor(a!)? running_mean, Tensor(b!)? running_var, "
      "Tensor counters, float momentum, float eps) -> (Tensor, Tensor)");
  library.def("bias_relu(Tensor input, Tensor bias) -> Tensor");
  library.def(
      "bias_relu_backward(Tensor grad, Tensor output, Tensor counters, ScalarType type) -> "
      "(Tensor, Tensor)");
  library.def("cast_together(Tensor[] tensors, ScalarType dtype, int[] parts) -> Tensor[]");
  library.def(
      "column_sum(Tensor input, Tensor counters, bool keep_rows, ScalarType type) -> Tensor");
  library.def(
      "concat_sum(Tensor[] parts, Tensor counters, bool keep_rows, ScalarType type) -> "
      "(Tensor, Tensor)");
  library.def(
      "cross_entropy(Tensor logits, Tensor target, Tensor loss_grad, bool mean, int ignore_index, "
      "ScalarType grad_type) -> (Tensor, Tensor, Tensor)");
  library.def(
      "embedding_gradient(Tensor grad, Tensor words, Tensor other, int padding_idx) -> Tensor");
  library.def(
      "filter_gradient(Tensor grad, Tensor image, int[] size, int[] strides, int[] stride, "
      "int[] padding, int[] dilation, bool bias) -> (Tensor, Tensor)");
  library.def("fold_image(Tensor image, int[] padding, int[] size, int channels) -> Tensor");
  library.def("folded_convolution(Tensor folded, Tensor weight) -> Tensor");
  library.def("folded_weight_gradient(Tensor grad, Tensor folded, Tensor weight) -> Tensor");
  library.def(
      "layer_norm(Tensor input, Tensor? residual, Tensor? weight, Tensor? bias, float eps, "
      "ScalarType type, int[] size) -> (Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "layer_norm_backward(Tensor grad, Tensor input, Tensor? weight, Tensor mean, Tensor rstd, "
      "Tensor? other, ScalarType? copy, ScalarType? sum, bool keep_rows) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  library.def(
      "max_pool(Tensor input, int[] kernel, int[] stride, int[] padding) -> (Tensor, Tensor)");
  library.def(
      "max_pool_backward(Tensor grad, Tensor places, int[] input_size, int[] kernel, "
      "int[] stride, int[] padding) -> Tensor");
  library.def("pointwise(Tensor[] inputs, str formula, int[] sizes, int[] strides) -> Tensor[]");
  library.def(
      "pointwise_sum(Tensor[] inputs, Tensor counters, str formula, int[] sizes, int[] strides, "
      "int columns, ScalarType type, int[] sum_sizes) -> Tensor[]");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("batch_norm_act", run_batch_norm_act);
  library.impl("batch_norm_act_again", run_batch_norm_act_again);
  library.impl("batch_norm_act_backward", run_batch_norm_act_backward);
  library.impl("batch_norm_pool", run_batch_norm_pool);
  library.impl("batch_norm_pool_backward", run_batch_norm_pool_backward);
  library.impl("batch_norm_statistics", run_batch_norm_statistics);
  library.impl("bias_relu", run_bias_relu);
  library.impl("bias_relu_backward", run_bias_relu_backward);
  library.impl("cast_together", run_cast_together);
  library.impl("column_sum", run_column_sum);
  library.impl("concat_sum", run_concat_sum);
  library.impl("cross_entropy", run_cross_entropy);
  library.impl("embedding_gradient", run_embedding_gradient);
  library.impl("filter_gradient", run_filter_gradient);
  library.impl("fold_image", run_fold_image);
  library.impl("folded_convolution", folded_convolution);
  library.impl("folded_weight_gradient", folded_weight_gradient);
  library.impl("layer_norm", run_layer_norm);
  library.impl("layer_norm_backward", run_layer_norm_backward);
  library.impl("max_pool", run_max_pool);
  library.impl("max_pool_backward", run_max_pool_backward);
  library.impl("pointwise", run_pointwise);
  library.impl("pointwise_sum", run_pointwise_sum);
}

}  // namespace tensorpack::cuda
