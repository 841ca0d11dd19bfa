// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/detail/allowed_operators.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorUtils.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {
namespace {

// Without "aten::", and without the last "_" of in-place operators. Left out on purpose: results
// whose shape depends on the data; sparse, quantized and nested tensors; backward kernels that do
// not check indices and saved results.
constexpr const char* kAllowed = R"(
  abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh binary_cross_entropy
  binary_cross_entropy_with_logits bitwise_and bitwise_left_shift bitwise_not bitwise_or
  bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min complex conj_physical copysign
  cos cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2 expm1 fill floor floor_divide fmax
  fmin fmod frac frexp gcd ge gelu glu gt hardshrink hardsigmoid hardswish hardtanh heaviside
  huber_loss hypot i0 igamma igammac isinf isnan isneginf isposinf lcm le leaky_relu lerp lgamma log
  log10 log1p log2 log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not logical_or
  logical_xor logit lt masked_fill maximum minimum mish mse_loss mul mvlgamma nan_to_num ne neg
  nextafter polar polygamma pow prelu _prelu_kernel rad2deg reciprocal relu remainder round rsqrt
  rsub sgn sigmoid sign signbit silu sin sinc sinh smooth_l1_loss soft_margin_loss softplus
  softshrink sqrt sub tan tanh threshold trunc where xlogy zero

  special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
  special_entr special_erfcx special_i0e special_i1 special_i1e special_log_ndtr
  special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
  special_modified_bessel_k1 special_ndtri special_xlog1py special_zeta

  elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward
  leaky_relu_backward logit_backward mish_backward mse_loss_backward sigmoid_backward silu_backward
  softplus_backward tanh_backward threshold_backward

  all amax amin aminmax any argmax argmin argsort bucketize count_nonzero cummax cummin cumprod
  cumsum dist histc isin kthvalue linalg_vector_norm logcumsumexp logsumexp max mean median min mode
  nanmedian nansum norm prod renorm searchsorted sort std std_mean sum topk trace var var_mean

  addbmm addmm addmv addr baddbmm bmm _cdist_forward conv_tbc convolution dot _euclidean_dist
  linalg_cross mm mv _trilinear vdot

  cholesky_inverse cholesky_solve _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex
  _linalg_svd linalg_cholesky_ex linalg_eig linalg_inv_ex linalg_lu linalg_lu_factor_ex linalg_pinv
  linalg_qr linalg_solve_triangular triangular_solve

  _fft_c2c _fft_c2r _fft_r2c fft_fftfreq fft_rfftfreq

  alias as_strided block_diag cat channel_shuffle clone col2im _conj constant_pad_nd contiguous copy
  detach diag_embed diagonal expand flip im2col lift_fresh narrow_copy _neg_view permute
  pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat
  replication_pad1d replication_pad2d replication_pad3d reshape _reshape_alias roll rot90 select
  select_scatter slice slice_scatter split split_with_sizes squeeze stack t _to_copy transpose tril
  triu unbind unfold unsafe_split unsafe_split_with_sizes _unsafe_view unsqueeze view
  view_as_complex view_as_real

  embedding _embedding_bag _embedding_bag_forward_only gather index index_add index_copy index_fill
  index_put index_reduce index_select masked_scatter scatter scatter_add scatter_reduce take

  arange bartlett_window blackman_window empty empty_like empty_strided eye full full_like
  hamming_window hann_window kaiser_window linspace logspace new_empty new_empty_strided new_full
  new_ones new_zeros ones ones_like range scalar_tensor tril_indices triu_indices zeros zeros_like

  _log_softmax _softmax _safe_softmax native_batch_norm _native_batch_norm_legit
  _native_batch_norm_legit_no_training native_group_norm native_layer_norm
  _scaled_dot_product_flash_attention_for_cpu _weight_norm_interface

  _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d avg_pool2d
  avg_pool3d max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d

  affine_grid_generator grid_sampler_2d grid_sampler_3d upsample_bicubic2d upsample_bilinear2d
  upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d
  _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d _upsample_nearest_exact2d
  _upsample_nearest_exact3d

  nll_loss_forward nll_loss2d_forward
)";

bool is_listed(std::string name) {
  static const std::unordered_set<std::string> listed = [] {
    std::istringstream names(kAllowed);
    return std::unordered_set<std::string>(std::istream_iterator<std::string>(names), {});
  }();
  constexpr std::string_view kNamespace = "aten::";
  if (!name.starts_with(kNamespace)) return false;
  name.erase(0, kNamespace.size());
  if (name.ends_with('_')) name.pop_back();
  return listed.contains(name);
}

// The arguments of a call by the names of the schema; what is None or missing there is empty.
class Call {
 public:
  Call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments)
      : schema_(op.schema()), arguments_(arguments) {}

  at::Tensor tensor(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isTensor() ? value->toTensor() : at::Tensor();
  }
  std::vector<int64_t> integers(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isIntList() ? value->toIntVector() : std::vector<int64_t>();
  }
  int64_t integer(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isInt() ? value->toInt() : 0;
  }
  bool has(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && !value->isNone();
  }
  bool is_integer(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isInt();
  }
  double number(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isDouble() ? value->toDouble() : 0;
  }
  bool flag(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isBool() && value->toBool();
  }

 private:
  const c10::IValue* find(const char* name) const {
    const auto index = schema_.argumentIndexWithName(name);
    return index.has_value() ? &arguments_[static_cast<size_t>(*index)] : nullptr;
  }

  const c10::FunctionSchema& schema_;
  c10::ArrayRef<c10::IValue> arguments_;
};

using Reason = std::optional<std::string>;

Reason unless(bool condition, const char* reason) { return condition ? Reason() : Reason(reason); }

bool is_dense(const at::Tensor& tensor) { return !tensor.defined() || tensor.is_contiguous(); }

bool has_elements(const at::Tensor& tensor, int64_t count) {
  return !tensor.defined() || tensor.numel() == count;
}

constexpr const char* kNotContiguous = "its tensors are not contiguous";

Reason check_batch_norm(const Call& call) {
  const at::Tensor input = call.tensor("input");
  const at::Tensor mean = call.tensor("running_mean");
  const at::Tensor variance = call.tensor("running_var");
  if (input.dim() < 2) return "its input has no channels";
  for (const at::Tensor& tensor : {call.tensor("weight"), call.tensor("bias"), mean, variance}) {
    if (!has_elements(tensor, input.size(1))) {
      return fmt::format("it has {} for {}", counted(tensor.numel(), "number"),
                         counted(input.size(1), "channel"));
    }
  }
  if (call.flag("training")) {
    if (mean.defined() || variance.defined()) return "it would write its statistics";
    return unless(input.numel() > 0, "it has no data to compute statistics from");
  }
  return unless(mean.defined() && variance.defined(), "it has no statistics");
}

Reason check_group_norm(const Call& call) {
  const int64_t channels = call.integer("C");
  const int64_t groups = call.integer("group");
  const bool is_divisible = groups > 0 && channels > 0 && channels % groups == 0;
  const at::Tensor input = call.tensor("input");
  if (!is_dense(call.tensor("weight")) || !is_dense(call.tensor("bias")) ||
      !input.is_contiguous(input.suggest_memory_format())) {
    return kNotContiguous;
  }
  return unless(is_divisible && input.dim() >= 2 && input.size(0) == call.integer("N") &&
                    input.size(1) == channels &&
                    input.numel() == input.size(0) * channels * call.integer("HxW") &&
                    has_elements(call.tensor("weight"), channels) &&
                    has_elements(call.tensor("bias"), channels),
                "its sizes do not fit together");
}

template <size_t kNumbers>
Reason check_padding(const Call& call) {
  return unless(call.integers("padding").size() == kNumbers,
                "its padding does not have two numbers for each dimension");
}

Reason check_shuffle(const Call& call) {
  constexpr int64_t kMost = 1 << 16;
  const int64_t factor = std::max(call.integer("upscale_factor"), call.integer("downscale_factor"));
  return unless(factor > 0 && factor <= kMost, "its factor is out of range");
}

Reason check_transform(const Call& call) {
  if (call.tensor("self").numel() == 0) return "it has no data to transform";
  const int64_t rank = call.tensor("self").dim();
  std::vector<int64_t> dims = call.integers("dim");
  std::sort(dims.begin(), dims.end());
  return unless(!dims.empty() && dims.front() >= 0 && dims.back() < rank &&
                    std::adjacent_find(dims.begin(), dims.end()) == dims.end(),
                "its dimensions do not exist or are named twice");
}

// A result of n real numbers takes n / 2 + 1 values, which is what at::fft_irfft() passes. Fewer
// are read past their end; with more, the kernel of libtorch 2.11 writes past the end of a tensor.
Reason check_real_transform(const Call& call) {
  if (const Reason reason = check_transform(call)) return reason;
  const int64_t size = call.integer("last_dim_size");
  return unless(size > 0 && size / 2 + 1 == call.tensor("self").size(call.integers("dim").back()),
                "the size of its result does not fit its values");
}

Reason check_convolution(const Call& call) {
  const at::Tensor weight = call.tensor("weight");
  const int64_t groups = call.integer("groups");
  return unless(weight.dim() > 0 && groups > 0 && groups <= weight.size(0),
                "its number of groups is out of range");
}

// The kernel computes where to read from the scale alone, if there is one.
Reason check_resize(const Call& call) {
  const at::Tensor image = call.tensor("self");
  const std::vector<int64_t> sizes = call.integers("output_size");
  std::vector<const char*> names = {"scales_d", "scales_h", "scales_w"};
  if (sizes.size() == 1) names = {"scales"};
  if (sizes.size() > names.size() || image.dim() < std::ssize(sizes)) return {};  // checked there
  for (size_t i = 0; i < sizes.size(); ++i) {
    const double scale = call.number(names[names.size() - sizes.size() + i]);
    const auto extent = static_cast<double>(image.size(image.dim() - std::ssize(sizes) + i));
    const auto wanted = static_cast<double>(sizes[i]);
    if (scale != 0 && std::floor(extent * scale) != wanted) {
      return fmt::format("it makes {} of {} by a scale of {}", wanted, extent, scale);
    }
  }
  return {};
}

// The operator checks nothing, because reshape() computed the strides.
Reason check_alias(const Call& call) {
  const at::Tensor self = call.tensor("self");
  const std::vector<int64_t> sizes = call.integers("size");
  const bool is_positive = std::all_of(sizes.begin(), sizes.end(), [](auto n) { return n >= 0; });
  if (!is_positive || c10::multiply_integers(sizes) != self.numel()) {
    return "it has another number of elements";
  }
  const auto strides = at::detail::computeStride(self.sizes(), self.strides(), sizes);
  return unless(strides.has_value() && *strides == call.integers("stride"),
                "its strides are not those of a reshaped tensor");
}

// The operator keeps to the storage. Some kernels leave a storage larger than its tensor, with
// old memory behind and between the elements.
Reason check_strided(const Call& call) {
  const at::Tensor self = call.tensor("self");
  const std::vector<int64_t> sizes = call.integers("size");
  const std::vector<int64_t> strides = call.integers("stride");
  if (sizes.size() != strides.size()) return {};  // checked there
  const int64_t first =
      call.has("storage_offset") ? call.integer("storage_offset") : self.storage_offset();
  int64_t last = first;
  for (size_t i = 0; i < sizes.size(); ++i) {
    int64_t reach = 0;
    if (sizes[i] == 0) return {};
    if (sizes[i] < 0 || strides[i] < 0 ||
        __builtin_mul_overflow(sizes[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return "its sizes or strides are out of range";
    }
  }
  return unless(self.is_non_overlapping_and_dense() && first >= self.storage_offset() &&
                    last < self.storage_offset() + self.numel(),
                "it reaches memory that is not of its tensor");
}

Reason check_weight_norm(const Call& call) {
  const at::Tensor v = call.tensor("v");
  const at::Tensor g = call.tensor("g");
  const int64_t dim = call.integer("dim");
  if (!is_dense(v) || !is_dense(g)) return kNotContiguous;
  return unless(v.numel() > 0 && (dim == 0 || dim == v.dim() - 1) && g.numel() == v.size(dim) &&
                    g.scalar_type() == v.scalar_type(),
                "its lengths do not fit its directions");
}

Reason check_attention(const Call& call) {
  const at::Tensor query = call.tensor("query");
  const at::Tensor key = call.tensor("key");
  const at::Tensor value = call.tensor("value");
  const at::Tensor mask = call.tensor("attn_mask");
  for (const at::Tensor& tensor : {query, key, value}) {
    if (tensor.dim() != 4 || tensor.numel() == 0) return "its tensors are empty or not 4-D";
    if (tensor.stride(3) != 1) return kNotContiguous;
    const at::Tensor& as_long = tensor.is_same(query) ? query : key;
    if (tensor.size(0) != query.size(0) || tensor.size(1) != query.size(1) ||
        tensor.size(3) != query.size(3) || tensor.size(2) != as_long.size(2)) {
      return "the shapes of its tensors do not fit together";
    }
  }
  const Shape scores = {query.size(0), query.size(1), query.size(2), key.size(2)};
  return unless(!mask.defined() || at::is_expandable_to(mask.sizes(), scores),
                "its mask does not fit its tensors");
}

// The kernel checks the numbers in its indices and offsets, but for the last offset of a list that
// includes the end: indices behind it are added behind the result.
Reason check_embedding_bag(const Call& call) {
  const at::Tensor weight = call.tensor("weight");
  const at::Tensor indices = call.tensor("indices");
  const at::Tensor offsets = call.tensor("offsets");
  const at::Tensor per_index = call.tensor("per_sample_weights");
  if (!is_dense(indices) || !is_dense(offsets)) return kNotContiguous;
  if (call.flag("include_last_offset")) return "its include_last_offset is not checked";
  return unless(
      weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1 && offsets.numel() > 0 &&
          indices.scalar_type() == offsets.scalar_type() &&
          (!per_index.defined() || (per_index.dim() == 1 && per_index.numel() == indices.numel() &&
                                    per_index.scalar_type() == weight.scalar_type())),
      "the shapes or types of its tensors do not fit together");
}

// The kernel makes a number of a number, whatever the index has.
Reason check_index_select(const Call& call) {
  return unless(call.tensor("self").dim() > 0 || call.tensor("index").numel() == 1,
                "it takes several elements of a number");
}

template <size_t kDimensions>
Reason check_unpool(const Call& call) {
  for (const char* name : {"output_size", "stride", "padding"}) {
    if (call.has(name) && call.integers(name).size() != kDimensions) {
      return fmt::format("its {} does not have a number for each dimension", name);
    }
  }
  const at::Tensor self = call.tensor("self");
  return unless(self.dim() == kDimensions + 1 || self.dim() == kDimensions + 2,
                "its tensor has other dimensions");
}

// Other modes than these leave the result as its memory was.
template <int64_t kModes>
Reason check_grid(const Call& call) {
  const int64_t mode = call.integer("interpolation_mode");
  return unless(mode >= 0 && mode < kModes, "it has an interpolation_mode that does not exist");
}

// The kernel reads where the order says.
Reason check_search(const Call& call) {
  return unless(!call.tensor("sorter").defined(), "it has a sorter, which is not checked");
}

// Arguments that stand for one of a few things.
Reason check_enumerations(const Call& call) {
  constexpr int64_t kEach = 3;
  for (const char* name : {"mode", "normalization", "padding_mode", "reduction"}) {
    const int64_t value = call.integer(name);
    if (value < 0 || value >= kEach) return fmt::format("its {} is {}", name, value);
  }
  return {};
}

// Integers whose division by -1 traps when they are the least of their type.
bool may_trap(at::ScalarType type) { return type == at::kLong || type == at::kInt; }

int64_t least_of(at::ScalarType type) {
  return type == at::kInt ? std::numeric_limits<int32_t>::min()
                          : std::numeric_limits<int64_t>::min();
}

// A number as the operator takes it beside a tensor of the type.
int64_t taken_as(at::ScalarType type, int64_t number) {
  return type == at::kInt ? static_cast<int32_t>(number) : number;
}

// Of numbers. Of tensors, see make_harmless().
Reason check_division(const Call& call) {
  const at::ScalarType self = call.tensor("self").scalar_type();
  const at::ScalarType other = call.tensor("other").scalar_type();
  if (may_trap(self) && call.is_integer("other") && taken_as(self, call.integer("other")) == -1) {
    return "it divides integers by -1";
  }
  return unless(!may_trap(other) || !call.is_integer("self") ||
                    taken_as(other, call.integer("self")) != least_of(other),
                "it divides an integer that has no negative");
}

// A constant of the program.
bool is_number_but(const at::Tensor& tensor, at::ScalarType type, int64_t value) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.scalar_type() == at::kLong &&
         taken_as(type, *tensor.data_ptr<int64_t>()) != value;
}

// `other`, with another number where the operator would end the process.
at::Tensor harmless(const at::Tensor& self, const at::Tensor& other, bool divides) {
  const at::ScalarType type = at::result_type(self, other);
  if (!may_trap(type) || !self.device().is_cpu()) return other;
  if (divides && is_number_but(other, type, -1)) return other;
  const at::Scalar least = least_of(type);
  const at::Tensor a = self.to(type);
  const at::Tensor b = other.to(type);
  // Least / -1 overflows: least / 1 is what it would be if it wrapped around. The greatest common
  // divisor of the least, by which lcm() divides, may be -1.
  return divides ? at::where(a.eq(least).logical_and(b.eq(-1)), at::ones_like(b), b)
                 : at::where(a.eq(least).logical_or(b.eq(least)), at::zeros_like(b), b);
}

using Check = Reason (*)(const Call& call);

const std::unordered_map<std::string, Check>& checks() {
  static const std::unordered_map<std::string, Check> all = {
      {"aten::_embedding_bag", check_embedding_bag},
      {"aten::_embedding_bag_forward_only", check_embedding_bag},
      {"aten::_fft_c2c", check_transform},
      {"aten::_fft_c2r", check_real_transform},
      {"aten::_fft_r2c", check_transform},
      {"aten::_native_batch_norm_legit", check_batch_norm},
      {"aten::_native_batch_norm_legit_no_training", check_batch_norm},
      {"aten::_reshape_alias", check_alias},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", check_attention},
      {"aten::_upsample_bicubic2d_aa", check_resize},
      {"aten::_upsample_bilinear2d_aa", check_resize},
      {"aten::_upsample_nearest_exact1d", check_resize},
      {"aten::_upsample_nearest_exact2d", check_resize},
      {"aten::_upsample_nearest_exact3d", check_resize},
      {"aten::_weight_norm_interface", check_weight_norm},
      {"aten::as_strided", check_strided},
      {"aten::as_strided_", check_strided},
      {"aten::convolution", check_convolution},
      {"aten::div", check_division},
      {"aten::div_", check_division},
      {"aten::floor_divide", check_division},
      {"aten::floor_divide_", check_division},
      {"aten::fmod", check_division},
      {"aten::fmod_", check_division},
      {"aten::grid_sampler_2d", check_grid<3>},
      {"aten::grid_sampler_3d", check_grid<2>},
      {"aten::index_select", check_index_select},
      {"aten::max_unpool2d", check_unpool<2>},
      {"aten::max_unpool3d", check_unpool<3>},
      {"aten::native_batch_norm", check_batch_norm},
      {"aten::native_group_norm", check_group_norm},
      {"aten::pixel_shuffle", check_shuffle},
      {"aten::pixel_unshuffle", check_shuffle},
      {"aten::reflection_pad1d", check_padding<2>},
      {"aten::reflection_pad2d", check_padding<4>},
      {"aten::reflection_pad3d", check_padding<6>},
      {"aten::replication_pad1d", check_padding<2>},
      {"aten::replication_pad2d", check_padding<4>},
      {"aten::replication_pad3d", check_padding<6>},
      {"aten::remainder", check_division},
      {"aten::remainder_", check_division},
      {"aten::searchsorted", check_search},
      {"aten::upsample_bicubic2d", check_resize},
      {"aten::upsample_bilinear2d", check_resize},
      {"aten::upsample_linear1d", check_resize},
      {"aten::upsample_nearest1d", check_resize},
      {"aten::upsample_nearest2d", check_resize},
      {"aten::upsample_nearest3d", check_resize},
      {"aten::upsample_trilinear3d", check_resize},
  };
  return all;
}

}  // namespace

bool is_allowed(const c10::OperatorHandle& op) {
  if (!is_listed(op.operator_name().name) || draws_random_numbers(op)) return false;
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    const bool is_output = i > 0 && alias != nullptr && alias->isWrite();
    if (is_output || arguments[i].name() == "unsafe") return false;
  }
  return true;
}

std::optional<std::string> reason_not_callable(const c10::OperatorHandle& op,
                                               c10::ArrayRef<c10::IValue> arguments) {
  const Call call(op, arguments);
  if (Reason reason = check_enumerations(call)) return reason;
  const auto found = checks().find(op.operator_name().name);
  return found == checks().end() ? std::nullopt : found->second(call);
}

void make_harmless(const c10::OperatorHandle& op, std::vector<c10::IValue>& arguments) {
  std::string name = op.operator_name().name;
  // They leave results as their memory was, or take them from there, with other strides.
  static const std::unordered_set<std::string> of_contiguous = {"aten::gelu_backward",
                                                                "aten::median", "aten::nanmedian"};
  if (of_contiguous.contains(name)) {
    for (c10::IValue& argument : arguments) {
      if (argument.isTensor()) argument = argument.toTensor().contiguous();
    }
  }
  if (arguments.size() < 2 || !arguments[0].isTensor() || !arguments[1].isTensor()) return;
  if (name.ends_with('_')) name.pop_back();
  const bool rounds = arguments.size() > 2 && !arguments[2].isNone();
  const bool divides = (name == "aten::div" && rounds) || name == "aten::floor_divide" ||
                       name == "aten::fmod" || name == "aten::remainder";
  if (!divides && name != "aten::lcm") return;
  arguments[1] = harmless(arguments[0].toTensor(), arguments[1].toTensor(), divides);
}

}  // namespace tensorpack::detail
