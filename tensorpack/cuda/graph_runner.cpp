// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/graph_runner.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>

#include "tensorpack/graph/exchange.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
#define TENSORPACK_HAS_HOST_ALLOCATOR
#include <ATen/core/CachingHostAllocator.h>
#else
#include <ATen/cuda/CachingHostAllocator.h>
#endif

namespace tensorpack::cuda {
namespace {

// Page-locked memory of the host in which state was kept during verification.
void release_host_memory() {
#ifdef TENSORPACK_HAS_HOST_ALLOCATOR
  at::getHostAllocator(at::kCUDA)->empty_cache();
#else
  at::cuda::CachingHostAllocator_emptyCache();
#endif
}

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
  static void order(c10::cuda::CUDAStream before, c10::cuda::CUDAStream after) {
    at::cuda::CUDAEvent event;
    event.record(before);
    event.block(after);
  }

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
  return value.options.device().is_cpu() && value.kind != ValueKind::kConstant;
}

std::string describe(const Node& node, const Value& value) {
  const std::string what = value.kind == ValueKind::kVariable ? "the variable '" + value.name + "'"
                           : value.kind == ValueKind::kInput  ? "the input '" + value.name + "'"
                                                              : "a tensor";
  return fmt::format("{}{} works on {} in host memory", node.op_name(),
                     node.scope.empty() ? "" : " in scope '" + node.scope + "'", what);
}

}  // namespace

std::optional<std::string> obstacle_to_capture(const Trace& trace) {
  for (const Node& node : trace.nodes) {
    std::optional<std::string> obstacle;
    const auto look = [&](ValueId id) {
      if (!obstacle && is_on_host(trace.values[id])) obstacle = describe(node, trace.values[id]);
    };
    node.for_each_argument(look);
    node.for_each_result(look);
    if (obstacle) return obstacle;
  }
  return std::nullopt;
}

GraphRunner::GraphRunner(std::string op_name, const Trace& trace,
                         const std::vector<std::string>& fetches, at::Generator generator,
                         std::shared_ptr<const CaptureSpace> space)
    : op_name_(std::move(op_name)),
      generator_(std::move(generator)),
      space_(std::move(space)),
      // Captured memory is fixed anyway.
      program_(trace, fetches, {.largest_kept_buffer = 0}) {
  for (ValueId id : trace.inputs) {
    const Value& value = trace.values[id];
    inputs_.push_back({.sizes = value.sizes,
                       .strides = value.strides,
                       .options = value.options,
                       .is_written = is_written(trace, value.storage)});
  }
  if (const auto obstacle = obstacle_to_capture(trace)) give_up(*obstacle);
}

std::vector<at::Tensor> GraphRunner::run(const std::vector<at::Tensor>& inputs) {
  // On the device, and back to this stream even if an operator throws beside it.
  const c10::cuda::CUDAStreamGuard on_stream(c10::cuda::getCurrentCUDAStream(space_->device));
  if (may_capture_ && !is_warm_) return warm_up(inputs);
  if (may_capture_ && (!capture_ || have_moved(inputs))) {
    place_inputs(inputs);
    capture();
  }
  return capture_ ? launch(inputs) : copies_of(program_.run(inputs));
}

std::vector<at::Tensor> GraphRunner::warm_up(const std::vector<at::Tensor>& inputs) {
  const PhaseLog phase(op_name_, c10::Device(c10::kCUDA, space_->device), "warming up");
  // Memory of the recording is of the other stream: without use from here on.
  c10::cuda::CUDACachingAllocator::emptyCache();
  release_host_memory();
  const Detour on_capture_stream(space_->stream);
  const WaitWatch watch(program_);
  std::vector<at::Tensor> values = copies_of(run_and_remember(inputs));
  if (!watch.culprit().empty()) give_up(watch.culprit() + " waits for the device");
  is_warm_ = true;
  // Kept, so that nothing else can come to lie there before the next run.
  for (size_t i = 0; i < inputs_.size(); ++i) inputs_[i].tensor = inputs[i];
  return values;
}

std::vector<at::Tensor> GraphRunner::run_and_remember(const std::vector<at::Tensor>& inputs) {
  Exchange* const exchange = current_exchange();
  if (exchange == nullptr || exchange->is_capturable()) return program_.run(inputs);
  RememberingExchange remembering(*exchange, averages_);
  const ExchangeScope bound(&remembering);
  return program_.run(inputs);
}

void GraphRunner::place_inputs(const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    Input& input = inputs_[i];
    input.is_callers = !capture_ && !input.is_written && is_same_memory(inputs[i], input.tensor) &&
                       inputs[i].strides() == input.strides;
    input.tensor = input.is_callers ? inputs[i].detach()
                                    : at::empty_strided(input.sizes, input.strides, input.options);
  }
}

bool GraphRunner::have_moved(const std::vector<at::Tensor>& inputs) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].is_callers && !is_same_memory(inputs[i], inputs_[i].tensor)) return true;
  }
  return false;
}

void GraphRunner::capture() {
  const PhaseLog phase(op_name_, c10::Device(c10::kCUDA, space_->device), "capturing");
  capture_.reset();
  outputs_.clear();
  std::vector<at::Tensor> inputs;
  for (const Input& input : inputs_) inputs.push_back(input.tensor);
  try {
    capture_.emplace(*space_, generator_, averages_.empty() ? nullptr : &averages_,
                     [&] { outputs_ = program_.run(inputs); });
  } catch (const std::exception& error) {
    capture_.reset();
    outputs_.clear();
    give_up(fmt::format("{}: {}", program_.current_op(), tensorpack::describe(error)));
  }
}

std::vector<at::Tensor> GraphRunner::launch(const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard no_grad;
  // Towers that share a device run beside each other.
  std::optional<Detour> beside_others;
  if (!averages_.empty()) beside_others.emplace(space_->stream);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs_[i].is_callers) continue;
    inputs_[i].tensor.copy_(inputs[i].detach(), /*non_blocking=*/true);
  }
  capture_->launch();
  return copies_of(outputs_);
}

void GraphRunner::give_up(const std::string& reason) {
  may_capture_ = false;
  inputs_.clear();
  log::warning("Op '{}' cannot be captured as a CUDA graph and is replayed instead: {}.", op_name_,
               reason);
}

}  // namespace tensorpack::cuda
