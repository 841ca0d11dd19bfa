// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/graph_runner.h"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>

#include <algorithm>

#include "tensorpack/cuda/stream_order.h"
#include "tensorpack/graph/exchange.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::cuda {
namespace {

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

// While it lives, this thread issues to `stream`: after what it had issued to the stream before,
// and before what it issues to that one again.
class [[nodiscard]] Detour {
 public:
  explicit Detour(c10::cuda::CUDAStream stream)
      : outer_(c10::cuda::getCurrentCUDAStream()), stream_(stream), guard_(stream) {
    order(outer_, stream_);
  }
  ~Detour() { order(stream_, outer_); }
  Detour(const Detour&) = delete;
  Detour& operator=(const Detour&) = delete;

 private:
  c10::cuda::CUDAStream outer_;
  c10::cuda::CUDAStream stream_;
  c10::cuda::CUDAStreamGuard guard_;
};

bool is_same_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.data_ptr() == b.data_ptr() && a.strides() == b.strides();
}

bool is_written(const Trace& trace, StorageId storage) {
  return std::any_of(trace.nodes.begin(), trace.nodes.end(), [&](const Node& node) {
    return std::find(node.writes.begin(), node.writes.end(), storage) != node.writes.end();
  });
}

// The towers of this run meet on the host.
bool exchanges_through_host() {
  const Exchange* const exchange = current_exchange();
  return exchange != nullptr && !exchange->is_capturable();
}

// Those that wait for the device are not captured anyway.
bool is_exchange(const std::string& op_name) {
  return op_name.starts_with("tensorpack::exchange_");
}

// While it lives, notices operators that wait for the device: those cannot be captured.
class WaitWatch final : public c10::WarningHandler {
 public:
  explicit WaitWatch(const Program& program)
      : program_(program), guard_(this), before_(c10::cuda::warning_state().get_sync_debug_mode()) {
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_WARN);
  }
  ~WaitWatch() override { c10::cuda::warning_state().set_sync_debug_mode(before_); }

  void process(const c10::Warning& warning) override {
    if (warning.msg().find("synchronizing CUDA operation") == std::string::npos) {
      c10::WarningHandler::process(warning);
    } else if (culprit_.empty() && !is_exchange(program_.current_op())) {
      culprit_ = program_.current_op();
    }
  }

  const std::string& culprit() const { return culprit_; }

 private:
  const Program& program_;
  c10::WarningUtils::WarningHandlerGuard guard_;
  c10::cuda::SyncDebugMode before_;
  std::string culprit_;
};

bool is_on_host(const Value& value) {
  return value.options.device().is_cpu() && (value.kind != ValueKind::kConstant || value.varies);
}

// Looked at while the work is captured, for each answer anew.
bool is_decided_before(const Trace& trace, const Node& node, ValueId id) {
  return id == condition_of(node) && trace.values[id].kind == ValueKind::kInput;
}

std::string describe(const Node& node, const Value& value) {
  const std::string what = value.kind == ValueKind::kVariable ? "the variable '" + value.name + "'"
                           : value.kind == ValueKind::kInput  ? "the input '" + value.name + "'"
                           : value.varies                     ? "a captured tensor"
                                                              : "a tensor";
  return fmt::format("{}{} works on {} in host memory", node.op_name(), in_scope(node.scope), what);
}

// Why a program cannot be captured, as far as its operators tell: what is computed on the host
// would be frozen.
std::optional<std::string> obstacle_to_capture(const Trace& trace) {
  for (const Node& node : trace.nodes) {
    std::optional<std::string> obstacle;
    const auto look = [&](ValueId id) {
      if (obstacle || is_decided_before(trace, node, id)) return;
      if (is_on_host(trace.values[id])) obstacle = describe(node, trace.values[id]);
    };
    node.for_each_argument(look);
    node.for_each_result(look);
    if (obstacle) return obstacle;
  }
  return std::nullopt;
}

// Taken out only where the rest can then be captured: where variables are on the host, towers that
// share them keep an order that this would change.
Decisions take_decisions(Trace& trace) {
  Trace rest = trace;
  Decisions decisions(rest);
  if (obstacle_to_capture(rest)) return {};
  trace = std::move(rest);
  return decisions;
}

}  // namespace

GraphRunner::GraphRunner(std::string op_name, Trace trace, const std::vector<std::string>& fetches,
                         at::Generator generator, std::shared_ptr<const CaptureSpace> space)
    : op_name_(std::move(op_name)),
      generator_(std::move(generator)),
      space_(std::move(space)),
      copies_(trace),
      decisions_(take_decisions(trace)),
      // Captured memory is fixed anyway.
      program_(trace, fetches, {.largest_kept_buffer = 0}) {
  for (ValueId id : trace.inputs) {
    const Value& value = trace.values[id];
    inputs_.push_back({.sizes = value.sizes,
                       .strides = value.strides,
                       .options = value.options,
                       .is_written = is_written(trace, value.storage)});
  }
  const size_t given = inputs_.size() - decisions_.size();
  for (size_t i = given; i < inputs_.size(); ++i) {
    decided_.push_back(at::empty({}, inputs_[i].options));
  }
  inputs_.resize(given);
  if (const auto obstacle = obstacle_to_capture(trace)) give_up(*obstacle);
}

std::vector<at::Tensor> GraphRunner::run(const std::vector<at::Tensor>& inputs) {
  // On the device, and back to this stream even if an operator throws beside it.
  const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getCurrentCUDAStream(space_->device));
  const KeptCopies::Run run(copies_);
  Variant& variant = decide();
  if (may_capture_ && !variant.is_warm) return warm_up(variant, inputs);
  if (may_capture_ && (!are_placed_ || have_moved(inputs))) place_inputs(inputs);
  if (may_capture_ && !variant.capture) capture(variant);
  return variant.capture ? launch(variant, inputs) : copies_of(program_.run(with_decided(inputs)));
}

// Captured work will be captured anew.
bool GraphRunner::give_back_memory() {
  const bool has_some = std::any_of(variants_.begin(), variants_.end(), [](const auto& variant) {
    return variant.second.capture.has_value();
  });
  if (!has_some) return false;
  const c10::cuda::CUDAGuard on_device(space_->device);
  c10::cuda::device_synchronize();  // it may be running
  forget_captures();
  return true;
}

// The answers that the host needs choose the variant. The device is told by a kernel, which waits
// for nothing.
GraphRunner::Variant& GraphRunner::decide() {
  const std::vector<bool> answers = decisions_.make();
  std::vector<bool> on_host;
  for (size_t i = 0; i < answers.size(); ++i) {
    decided_[i].fill_(static_cast<bool>(answers[i]));
    if (decided_[i].is_cpu()) on_host.push_back(answers[i]);
  }
  return variants_[on_host];
}

std::vector<at::Tensor> GraphRunner::with_decided(std::vector<at::Tensor> inputs) const {
  inputs.insert(inputs.end(), decided_.begin(), decided_.end());
  return inputs;
}

std::vector<at::Tensor> GraphRunner::warm_up(Variant& variant,
                                             const std::vector<at::Tensor>& inputs) {
  const PhaseLog phase(op_name_, c10::Device(c10::kCUDA, space_->device), "warming up");
  // Memory of the recording is of the other stream: without use from here on.
  c10::cuda::CUDACachingAllocator::emptyCache();
  const Detour on_capture_stream(space_->stream);
  const WaitWatch watch(program_);
  std::vector<at::Tensor> values = copies_of(run_and_remember(with_decided(inputs)));
  if (!watch.culprit().empty()) give_up(watch.culprit() + " waits for the device");
  variant.is_warm = true;
  // Kept, so that nothing else can come to lie there before the next run.
  for (size_t i = 0; !are_placed_ && i < inputs_.size(); ++i) inputs_[i].tensor = inputs[i];
  return values;
}

std::vector<at::Tensor> GraphRunner::run_and_remember(const std::vector<at::Tensor>& inputs) {
  if (!exchanges_through_host()) return program_.run(inputs);
  RememberingExchange remembering(*current_exchange(), averages_);
  const ExchangeScope bound(&remembering);
  return program_.run(inputs);
}

void GraphRunner::place_inputs(const std::vector<at::Tensor>& inputs) {
  forget_captures();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    input.is_callers = !are_placed_ && !input.is_written &&
                       is_same_memory(inputs[i], input.tensor) &&
                       inputs[i].strides() == input.strides;
    input.tensor = input.is_callers ? inputs[i].detach()
                                    : at::empty_strided(input.sizes, input.strides, input.options);
  }
  are_placed_ = true;
}

bool GraphRunner::have_moved(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].is_callers && !is_same_memory(inputs[i], inputs_[i].tensor)) return true;
  }
  return false;
}

void GraphRunner::forget_captures() {
  for (auto& [due, variant] : variants_) {
    variant.capture.reset();
    variant.outputs.clear();
  }
}

void GraphRunner::capture(Variant& variant) {
  const PhaseLog phase(op_name_, c10::Device(c10::kCUDA, space_->device), "capturing");
  std::vector<at::Tensor> inputs;
  for (const Input& input : inputs_) inputs.push_back(input.tensor);
  try {
    variant.capture.emplace(*space_, generator_, averages_.empty() ? nullptr : &averages_,
                            [&] { variant.outputs = program_.run(with_decided(inputs)); });
  } catch (const std::exception& error) {
    give_up(fmt::format("{}: {}", program_.current_op(), tensorpack::describe(error)));
  }
}

std::vector<at::Tensor> GraphRunner::launch(Variant& variant,
                                            const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_grad;
  // Towers that share a device run beside each other.
  std::optional<Detour> beside_others;
  if (exchanges_through_host()) beside_others.emplace(space_->stream);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs_[i].is_callers) continue;
    inputs_[i].tensor.copy_(inputs[i].detach(), /*non_blocking=*/true);
  }
  variant.capture->launch();
  return copies_of(variant.outputs);
}

void GraphRunner::give_up(const std::string& reason) {
  may_capture_ = false;
  forget_captures();
  inputs_.clear();
  logging::warning("Op '{}' cannot be captured as a CUDA graph and is replayed instead: {}.",
                   op_name_, reason);
}

}  // namespace tensorpack::cuda
