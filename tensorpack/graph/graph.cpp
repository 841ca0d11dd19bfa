// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/graph.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/graph/torch_compat.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// FNV-1a: a name gives the same seed on every machine and with every standard library.
uint64_t hash_name(const std::string& name, uint64_t seed) {
  uint64_t hash = 14695981039346656037ULL ^ (seed * 0x9E3779B97F4A7C15ULL);
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

std::string list_inputs(const std::vector<TensorSpec>& inputs) {
  std::vector<std::string> texts;
  for (const TensorSpec& spec : inputs) texts.push_back(spec.to_string());
  return join(texts, ", ");
}

std::map<std::string, TensorSpec> specs_of(const NamedTensors& tensors) {
  std::map<std::string, TensorSpec> outputs;
  for (const auto& [name, tensor] : tensors) {
    outputs.emplace(name, TensorSpec{name, tensor.sizes().vec(), tensor.scalar_type()});
  }
  return outputs;
}

// Whoever runs an op, a callback with gradients switched off too, gets the same program. cuDNN's
// choice among its kernels is one of each thread: the program, which runs on one, and the function
// must not make different ones.
OpBody with_gradients(OpBody body) {
  return [body = std::move(body)](const std::vector<at::Tensor>& inputs) {
    const at::AutoGradMode enabled(true);
    const BackwardOnThisThread backward;
    return body(inputs);
  };
}

}  // namespace

Graph::Graph(GraphOptions options) : options_(options) {
  options_.device = check_device(options_.device);
  use_device(options_.device);
  global_step_ = &create_variable("global_step", {},
                                  {.role = VariableRole::kGlobal, .dtype = at::kLong}, at::kCPU);
}

Graph::~Graph() = default;

Op Graph::define(OpOptions options) {
  TP_CHECK(!final_, "define",
           "op '{}' is defined after the graph was made final. Define it before training starts: "
           "in the trainer's constructor, or in a callback's setup_graph().",
           options.name);
  TP_CHECK(options.body != nullptr, "define", "op '{}' has no body. Pass a callable.",
           options.name);
  check_signature(options.inputs);
  const c10::Device device = check_device(options.device.value_or(options_.device));
  use_device(device);
  auto state = std::make_shared<Op::State>(Op::State{.kind = Op::State::Kind::kProgram,
                                                     .name = std::move(options.name),
                                                     .device = device,
                                                     .inputs = std::move(options.inputs),
                                                     .body = with_gradients(options.body),
                                                     .feeder = std::move(options.feeder)});
  build(*state);
  ops_.push_back(Op(std::move(state)));
  return ops_.back();
}

void Graph::use_device(c10::Device device) {
  if (std::find(devices_.begin(), devices_.end(), device) == devices_.end()) {
    devices_.push_back(device);
  }
}

void Graph::build(Op::State& state) {
  const PhaseLog phase(state.name, state.device, "building on a trial input");
  std::vector<at::Tensor> trial;
  for (const TensorSpec& spec : state.inputs) trial.push_back(spec.trial_value(state.device));
  try {
    StateGuard guard(*this);
    LookupLog lookups;
    state.outputs = specs_of(state.body(trial));
    state.looked_up = lookups.names();
  } catch (const Error&) {
    throw;  // already says where
  } catch (const InternalError&) {
    throw;
  } catch (const StopTraining&) {
    throw;
  } catch (const std::exception& error) {
    if (give_up_channels_last()) {
      log::debug("Op '{}' cannot be built with channels_last weights: {}", state.name,
                 describe(error));
      return build(state);
    }
    throw make_error("define '" + state.name + "'",
                     "{} (while it was built on zeros for: {}. If only the size of the open "
                     "dimensions is to blame, set TensorSpec::trial_shape.)",
                     describe(error), list_inputs(state.inputs));
  }
}

bool Graph::wants_channels_last() {
  channels_last_used_ |= options_.channels_last;
  return options_.channels_last;
}

// Makes every variable contiguous. False when there is nothing to give up, or it is too late.
bool Graph::give_up_channels_last() {
  if (!channels_last_used_ || layout_locked_) return false;
  channels_last_used_ = options_.channels_last = false;
  at::NoGradGuard no_grad;
  for (Variable& variable : variables_.all()) {
    if (variable.tensor.is_contiguous()) continue;
    variable.tensor.set_data(variable.tensor.detach().contiguous());
  }
  return true;
}

Variable& Graph::create_variable(const std::string& name, at::IntArrayRef shape,
                                 const VariableOptions& options, c10::Device device) {
  TP_CHECK(!final_, "get_variable",
           "'{}' is new, and the graph is final. Create every variable while the graph is built: "
           "what the model creates must not depend on the data or on the step. {}",
           name, did_you_mean(name, variables_.names()));
  at::NoGradGuard no_grad;
  // Drawn on the CPU, so that a seed gives the same model on every device.
  at::Tensor value = at::zeros(shape, at::TensorOptions(options.dtype));
  if (options.init) {
    options.init(value, at::detail::createCPUGenerator(hash_name(name, options_.seed)));
  }
  value = value.to(device);
  if (options.channels_last && value.dim() == 4 && wants_channels_last()) {
    value = value.contiguous(at::MemoryFormat::ChannelsLast);
  }
  if (options.role == VariableRole::kTrainable) value.set_requires_grad(true);
  Variable& variable = variables_.add({name, value, options.role});
  if (guard_ != nullptr) guard_->on_created(variable);
  return variable;
}

c10::Device check_device(c10::Device device) {
  if (device.is_cpu()) return device;
  TP_CHECK(c10::impl::hasDeviceGuardImpl(device.type()), "device",
           "'{}' cannot be used: this libtorch was built without it. Install a libtorch that has "
           "it, or use the CPU.",
           device.str());
  const c10::impl::VirtualGuardImpl backend(device.type());
  const int count = backend.deviceCount();
  TP_CHECK(count > 0, "device",
           "'{}' cannot be used: no such device can be seen. Check nvidia-smi and "
           "CUDA_VISIBLE_DEVICES, or use the CPU.",
           device.str());
  if (!device.has_index()) device = backend.getDevice();
  TP_CHECK(device.index() < count, "device",
           "'{}' cannot be used: there are {}, counted from 0. Choose one of them.", device.str(),
           count);
  return device;
}

std::string describe(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    return torch_error->what_without_backtrace();
  }
  return error.what();
}

}  // namespace tensorpack
