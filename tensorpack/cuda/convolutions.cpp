// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/convolutions.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "tensorpack/cuda/cudnn.h"
#include "tensorpack/cuda/kernels/convolution.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/stats.h"

namespace tensorpack::cuda {
namespace {

using Result = ConvolutionProblem::Result;

// More would be part of the step's memory.
constexpr int64_t kMostWorkspaceBytes = int64_t{1} << 28;
// How often a kernel is timed that is not much slower than the fastest so far.
constexpr int kTimings = 5;
constexpr float kMuchSlower = 1.3f;
// Of kernels that take so little longer than the fastest, cuDNN's first is taken: it was seen to be
// the better one beside other work, which may be there, or is known to be.
constexpr double kNearlyAsFast = 1.05, kNearlyAsFastBeside = 1.10;
// In cycles, some 30 us: the device waits so long that the host has issued what is timed.
constexpr int64_t kHeadStart = 60'000;

at::Tensor workspace_of(const ConvolutionPlan& plan) {
  return at::empty({plan.workspace_bytes()}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
}

bool is_aligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % kConvolutionAlignment == 0;
}

}  // namespace

// A kernel, and how long it took, in ms.
struct Convolutions::Tried {
  std::unique_ptr<ConvolutionPlan> plan;
  std::vector<double> times;
};

Convolutions::Convolutions(KernelCache cache)
    : cache_(std::move(cache)), device_(at::cuda::getCurrentDeviceProperties()->name) {
  const int result = cudnn().create_handle(&handle_);
  TP_CHECK(result == 0, "convolutions", "cuDNN cannot be used: {}.", cudnn().error_text(result));
}

bool Convolutions::run(const ConvolutionProblem& problem, const at::Tensor& input,
                       const at::Tensor& weight, const at::Tensor& output) {
  if (!is_aligned(input) || !is_aligned(weight) || !is_aligned(output)) return false;
  ConvolutionMemory memory{input.data_ptr(), weight.data_ptr(), output.data_ptr()};
  const std::lock_guard lock(mutex_);
  cudnn().set_stream(handle_, at::cuda::getCurrentCUDAStream().stream());
  const ConvolutionPlan* plan = plan_for(problem, memory);
  if (plan == nullptr) return false;
  const at::Tensor workspace = workspace_of(*plan);
  memory.workspace = workspace.data_ptr();
  plan->run(handle_, memory);
  return true;
}

const ConvolutionPlan* Convolutions::plan_for(const ConvolutionProblem& problem,
                                              const ConvolutionMemory& memory) {
  const int most = at::globalContext().benchmarkLimitCuDNN();
  const std::string key = fmt::format("cuDNN {} on {}, {} candidates\n{}", cudnn().version(),
                                      device_, most, problem.text());
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();
  // What is captured cannot be timed. It was run before, as a rule.
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) {
    return nullptr;
  }
  std::unique_ptr<ConvolutionPlan>& plan = plans_[key];  // null if the search fails
  plan = kept_plan(key);
  if (!plan) {
    Choice choice = fastest_plan(problem, memory, most);
    plan = std::move(choice.plan);
    if (plan && choice.is_among_all) cache_.store(key, plan->text());
  }
  return plan.get();
}

std::unique_ptr<ConvolutionPlan> Convolutions::kept_plan(const std::string& key) const {
  const auto text = cache_.find(key);
  if (!text) return nullptr;
  try {
    return std::make_unique<ConvolutionPlan>(handle_, *text);
  } catch (const Error& error) {
    logging::debug("A kernel that was chosen before is chosen again: {}", error.what());
    return nullptr;
  }
}

Convolutions::Choice Convolutions::fastest_plan(const ConvolutionProblem& problem,
                                                const ConvolutionMemory& memory, int most) {
  ++searches_;
  const auto stream = at::cuda::getCurrentCUDAStream();
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  const auto run = [&](const ConvolutionPlan& plan) {
    const at::Tensor workspace = workspace_of(plan);
    ConvolutionMemory with_workspace = memory;
    with_workspace.workspace = workspace.data_ptr();
    at::cuda::sleep(kHeadStart);
    begin.record(stream);
    plan.run(handle_, with_workspace);
    end.record(stream);
    end.synchronize();
    return begin.elapsed_time(end);
  };

  std::vector<Tried> tried;
  bool all_have_room = true;
  const ConvolutionOffer offer = offer_for(handle_, problem, most);
  for (const Descriptor& configuration : offer.configurations) {
    try {
      auto plan = std::make_unique<ConvolutionPlan>(handle_, configuration);
      if (plan->workspace_bytes() > kMostWorkspaceBytes) continue;
      run(*plan);  // loads it
      const double once = run(*plan);
      tried.push_back({std::move(plan), {once}});
    } catch (const c10::OutOfMemoryError&) {
      all_have_room = false;
    } catch (const std::exception& error) {
      logging::debug("A kernel of cuDNN is left out: {}", describe(error));
    }
  }
  const auto is_faster = [](const Tried& a, const Tried& b) {
    return median(a.times) < median(b.times);
  };
  const auto fastest = [&] { return std::min_element(tried.begin(), tried.end(), is_faster); };
  if (tried.empty()) return {nullptr, all_have_room};
  const size_t count = tried.size();
  const double limit = kMuchSlower * median(fastest()->times);
  std::erase_if(tried, [&](const Tried& one) { return one.times[0] > limit; });
  for (int i = 1; i < kTimings && tried.size() > 1; ++i) {
    for (Tried& one : tried) one.times.push_back(run(*one.plan));
  }
  logging::debug("Of {} kernels for {} the fastest takes {:.1f} us.", count, problem.text(),
                 1e3 * median(fastest()->times));
  const double limit_of_choice =
      (problem.beside ? kNearlyAsFastBeside : kNearlyAsFast) * median(fastest()->times);
  const auto chosen = std::find_if(tried.begin(), tried.end(), [&](const Tried& one) {
    return median(one.times) <= limit_of_choice;
  });
  return {std::move(chosen->plan), all_have_room};
}

// ---- the operators

namespace {

// Of the current device.
Convolutions& convolutions() {
  // Never destroyed: cuDNN may be gone by then.
  static auto* const of_devices = new std::map<c10::DeviceIndex, std::unique_ptr<Convolutions>>();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& found = (*of_devices)[c10::cuda::current_device()];
  if (!found) found = std::make_unique<Convolutions>(KernelCache(default_kernel_cache()));
  return *found;
}

// One convolution with its tensors, which lie as its results do.
class Problem {
 public:
  Problem(const at::Tensor& input, const at::Tensor& weight, ConvolutionGeometry geometry)
      : geometry_(std::move(geometry)), type_(input.scalar_type()), weight_(weight.sizes().vec()) {}

  bool is_chosen(const at::Tensor& input, const at::Tensor& weight) const {
    const at::Context& context = at::globalContext();
    constexpr int64_t kMostElements = std::numeric_limits<int32_t>::max();
    return context.userEnabledCuDNN() && !context.deterministicCuDNN() &&
           context.benchmarkLimitCuDNN() != 1 &&
           has_chosen_convolution(type_, input.sizes().size(), /*groups=*/1) &&
           weight.scalar_type() == type_ && input.numel() > 0 && weight.numel() > 0 &&
           input.numel() <= kMostElements && can_choose_convolutions();
  }

  std::vector<int64_t> output_sizes(const at::Tensor& input) const {
    const bool transposed = geometry_.transposed;
    std::vector<int64_t> sizes = {input.size(0), transposed ? weight_[1] : weight_[0]};
    for (size_t i = 0; i < 2; ++i) {
      const int64_t from = input.size(static_cast<int64_t>(2 + i));
      const int64_t reach = geometry_.dilation[i] * (weight_[2 + i] - 1) + 1;
      sizes.push_back(transposed
                          ? (from - 1) * geometry_.stride[i] - 2 * geometry_.padding[i] + reach +
                                geometry_.output_padding[i]
                          : (from + 2 * geometry_.padding[i] - reach) / geometry_.stride[i] + 1);
    }
    return sizes;
  }

  at::Tensor laid_out(const at::Tensor& tensor) const {
    return tensorpack::cuda::laid_out(tensor, geometry_);
  }
  at::Tensor empty(at::IntArrayRef sizes, const at::Tensor& like) const {
    return at::empty(sizes, like.options(), format_of(geometry_));
  }

  // Computes one of them of the other two. A transposed convolution has input and output changed.
  bool run(Result result, const at::Tensor& input, const at::Tensor& weight,
           const at::Tensor& output, bool beside = false) const {
    if (output.numel() == 0 || output.numel() > std::numeric_limits<int32_t>::max()) return false;
    const bool swaps = geometry_.transposed;
    if (swaps && result != Result::kWeight) {
      result = result == Result::kOutput ? Result::kInput : Result::kOutput;
    }
    const at::Tensor& first = swaps ? output : input;
    const at::Tensor& last = swaps ? input : output;
    const ConvolutionProblem problem{
        .result = result,
        .type = type_,
        .tf32 = type_ == c10::kFloat && at::globalContext().allowTF32CuDNN(),
        .input = layout_of(first),
        .weight = layout_of(weight),
        .output = layout_of(last),
        .stride = geometry_.stride,
        .padding = geometry_.padding,
        .dilation = geometry_.dilation,
        .beside = beside,
    };
    try {
      return convolutions().run(problem, first, weight, last);
    } catch (const Error& error) {
      logging::warning_once("A convolution is left to libtorch: {}", error.what());
      return false;
    }
  }

 private:
  ConvolutionProblem::Layout layout_of(const at::Tensor& tensor) const {
    return {tensor.sizes().vec(), strides_of(tensor.sizes(), geometry_.channels_last)};
  }

  ConvolutionGeometry geometry_;
  c10::ScalarType type_;
  std::vector<int64_t> weight_;
};

at::Tensor run_convolution(const at::Tensor& input, const at::Tensor& weight,
                           const c10::optional<at::Tensor>& bias, at::IntArrayRef stride,
                           at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                           at::IntArrayRef output_padding, bool channels_last) {
  const c10::cuda::CUDAGuard on_device(input.device());
  const ConvolutionGeometry geometry{stride.vec(), padding.vec(),        dilation.vec(),
                                     transposed,   output_padding.vec(), channels_last};
  const Problem problem(input, weight, geometry);
  if (problem.is_chosen(input, weight)) {
    at::Tensor output = problem.empty(problem.output_sizes(input), input);
    if (problem.run(Result::kOutput, problem.laid_out(input), problem.laid_out(weight), output)) {
      if (bias && bias->defined()) output.add_(bias->reshape({1, -1, 1, 1}));
      return output;
    }
  }
  return libtorch_convolution(input, weight, bias, geometry);
}

ConvolutionGradients run_convolution_backward(const at::Tensor& grad_, const at::Tensor& input_,
                                              const at::Tensor& weight_, at::IntArrayRef stride,
                                              at::IntArrayRef padding, at::IntArrayRef dilation,
                                              bool transposed, at::IntArrayRef output_padding,
                                              std::array<bool, 3> wanted, bool channels_last,
                                              bool beside) {
  const c10::cuda::CUDAGuard on_device(grad_.device());
  const ConvolutionGeometry geometry{stride.vec(), padding.vec(),        dilation.vec(),
                                     transposed,   output_padding.vec(), channels_last};
  const Problem problem(input_, weight_, geometry);
  ConvolutionGradients gradients;
  auto& [of_input, of_weight, of_bias] = gradients;
  if (problem.is_chosen(input_, weight_) && grad_.scalar_type() == input_.scalar_type()) {
    const at::Tensor grad = problem.laid_out(grad_);
    if (wanted[0]) {
      of_input = problem.empty(input_.sizes(), input_);
      if (problem.run(Result::kInput, of_input, problem.laid_out(weight_), grad, beside)) {
        wanted[0] = false;
      }
    }
    if (wanted[1]) {
      of_weight = problem.empty(weight_.sizes(), weight_);
      if (problem.run(Result::kWeight, problem.laid_out(input_), of_weight, grad))
        wanted[1] = false;
    }
    if (wanted[2]) {
      of_bias = grad.sum({0, 2, 3});
      wanted[2] = false;
    }
  }
  if (wanted[0] || wanted[1] || wanted[2]) {
    auto rest = libtorch_convolution_backward(grad_, input_, weight_, geometry, wanted);
    if (wanted[0]) of_input = std::get<0>(rest);
    if (wanted[1]) of_weight = std::get<1>(rest);
    if (wanted[2]) of_bias = std::get<2>(rest);
  }
  return gradients;
}

}  // namespace

void link_convolutions() {}

bool can_choose_convolutions() {
  static const bool can = [] {
    try {
      cudnn();
      return true;
    } catch (const Error& error) {
      logging::warning("libtorch chooses the kernels of convolutions: {}", error.what());
      return false;
    }
  }();
  return can;
}

TORCH_LIBRARY_IMPL(tensorpack, CUDA, library) {
  library.impl("convolution", run_convolution);
  library.impl("convolution_backward", run_convolution_backward);
}

}  // namespace tensorpack::cuda
