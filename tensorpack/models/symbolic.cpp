// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/symbolic.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/library.h>

#include <algorithm>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// Boxed: versions of libtorch differ in what a kernel calls a string.
void log_statistics(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  constexpr int64_t kShown = 20;
  const std::string message = torch::jit::pop(*stack).toStringRef();
  const at::Tensor x = torch::jit::pop(*stack).toTensor();
  const at::Tensor values = x.detach().to(at::kCPU, at::kDouble).flatten();
  const at::Tensor shown = values.narrow(0, 0, std::min(kShown, values.numel())).contiguous();
  logging::info("{}: shape [{}], mean {:.4g}, rms {:.4g}, values [{:.4g}{}].", message,
                fmt::join(x.sizes(), ", "), values.mean().item<double>(),
                rms(values).item<double>(),
                fmt::join(shown.data_ptr<double>(), shown.data_ptr<double>() + shown.numel(), ", "),
                shown.numel() < values.numel() ? ", ..." : "");
}

}  // namespace

at::Tensor prediction_incorrect(const at::Tensor& logits, const at::Tensor& label, int64_t topk) {
  TP_CHECK(logits.dim() == 2 && label.dim() == 1 && logits.size(0) == label.size(0),
           "prediction_incorrect", "logits [{}] and label [{}] must be [N, classes] and [N].",
           fmt::join(logits.sizes(), ", "), fmt::join(label.sizes(), ", "));
  TP_CHECK(topk > 0 && topk <= logits.size(1), "prediction_incorrect",
           "topk is {} for {}. Pass 1 or more, and no more than there are classes.", topk,
           counted(logits.size(1), "class"));
  const at::Tensor best =
      topk == 1 ? logits.argmax(1, /*keepdim=*/true) : std::get<1>(logits.topk(topk, 1));
  return best.ne(label.unsqueeze(1)).all(1).to(at::kFloat);
}

at::Tensor accuracy(const at::Tensor& logits, const at::Tensor& label, int64_t topk) {
  return 1 - prediction_incorrect(logits, label, topk).mean();
}

at::Tensor OneHot::operator()(const at::Tensor& labels, int64_t classes) const {
  TP_CHECK(at::isIntegralType(labels.scalar_type(), /*includeBool=*/false) && classes > 0,
           "one_hot", "labels must be integers and classes positive, got {} and {}.",
           c10::toString(labels.scalar_type()), classes);
  return labels.unsqueeze(-1).eq(at::arange(classes, labels.options())).to(at::kLong);
}

at::Tensor masked_sum(const at::Tensor& x, const at::Tensor& mask) {
  // Not a product: what is left out may be infinite.
  return at::where(mask, x, at::zeros({}, x.options())).sum();
}

at::Tensor masked_mean(const at::Tensor& x, const at::Tensor& mask) {
  const at::Tensor count = mask.expand_as(x).sum().clamp_min(1);
  return masked_sum(x, mask) / count;
}

at::Tensor masked_assign(const at::Tensor& x, const at::Tensor& mask, const at::Tensor& value) {
  return at::where(mask, value.to(x.options()), x);
}

at::Tensor rms(const at::Tensor& x) { return x.square().mean().sqrt(); }

at::Tensor huber_loss(const at::Tensor& x, double delta) {
  TP_CHECK(delta > 0, "huber_loss", "delta is {}. It must be above 0.", delta);
  const at::Tensor size = x.abs();
  return at::where(size <= delta, 0.5 * x.square(), delta * (size - 0.5 * delta));
}

at::Tensor print_stat(const at::Tensor& x, const std::string& message) {
  TP_CHECK(x.defined(), "print_stat", "the tensor is undefined. Compute it first.");
  const CallScope* call = CallScope::current();
  std::string title = message;
  if (title.empty() && call != nullptr) title = call->name_of(x);
  // An operator without results: a recorded program keeps it, and runs it every time.
  static const auto op = find_operator("tensorpack::log_statistics");
  torch::jit::Stack stack{x, title.empty() ? "tensor" : title};
  op.callBoxed(stack);
  return x;
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("log_statistics(Tensor x, str message) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("log_statistics", torch::CppFunction::makeFromBoxedFunction<&log_statistics>());
}

}  // namespace tensorpack
