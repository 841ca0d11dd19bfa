// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/graph.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <typeindex>
#include <utility>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/chief_only.h"
#include "tensorpack/graph/failure_place.h"
#include "tensorpack/graph/kept_locked.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/random_stream.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/graph/variable_checks.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/device.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/seed.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {
namespace {

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

// Not of the ThreadFrame, which is another one for the functions that a run calls.
thread_local const Graph* locked_by_the_run = nullptr;

// What building took for first values of variables.
struct Drawing {
  double seconds = 0;
  int variables = 0;
};

bool has_open_inner_dimension(const TensorSpec& spec) {
  return std::find(spec.shape.begin() + (spec.shape.empty() ? 0 : 1), spec.shape.end(), -1) !=
         spec.shape.end();
}

// A variable that an open dimension sizes fits the trial input alone; "" if there is none.
std::string advice_on_open_dimensions(const std::vector<TensorSpec>& inputs) {
  std::string advice;
  for (const TensorSpec& spec : inputs) {
    if (!has_open_inner_dimension(spec)) continue;
    advice += fmt::format(
        " The input '{}' leaves a dimension open besides the first, and the graph was built with "
        "[{}]: if that sizes the variable, write its size into the input signature.",
        spec.to_string(), fmt::join(spec.trial_value(c10::kCPU).sizes(), ", "));
  }
  return advice;
}

// Whoever runs an op, a callback with gradients switched off too, gets the same program. cuDNN's
// choice among its kernels is one of each thread: the program, which runs on one, and the function
// must not make different ones.
OpBody complete(OpBody body, at::Generator generator, std::vector<TensorSpec> specs) {
  return [body = std::move(body), generator = std::move(generator),
          specs = std::move(specs)](const std::vector<at::Tensor>& inputs) {
    const at::AutoGradMode enabled(true);
    const BackwardOnThisThread backward;
    std::optional<DrawFrom> random_numbers;
    if (generator.defined()) random_numbers.emplace(generator);
    try {
      return body(inputs);
    } catch (const ShapeMismatch& error) {
      throw Error(error.what() + advice_on_open_dimensions(specs));
    }
  };
}

}  // namespace

struct Graph::Kept {
  std::map<std::string, at::Generator> generators;
  std::map<std::type_index, std::shared_ptr<void>> attachments;
};

Graph::Graph(GraphOptions options)
    : options_(options),
      seed_(options.seed ? *options.seed : derive_seed(global_seed(), "graph")),
      kept_(std::make_unique<Kept>()) {
  options_.device = check_device(options_.device);
  for (c10::Device& device : options_.variable_devices) device = check_device(device);
  global_step_ = &create_variable("global_step", {},
                                  {.role = VariableRole::kGlobal, .dtype = at::kLong}, at::kCPU);
}

Graph::~Graph() = default;

const std::map<std::string, at::Generator>& Graph::generators() const { return kept_->generators; }

std::shared_ptr<void>& Graph::attachment(const std::type_info& type) {
  return kept_->attachments[type];
}

void Graph::announce_change() {
  ChiefOnlyScope::check_announceable(variables_);
  ++announced_changes_;
}

Op Graph::define(OpOptions options) {
  TP_CHECK(!final_, "define",
           "op '{}' is defined after the graph was made final. Define it before training starts: "
           "in the trainer's constructor, or in a callback's setup_graph().",
           options.name);
  TP_CHECK(options.body != nullptr, "define", "op '{}' has no body. Pass a callable.",
           options.name);
  check_signature(options.inputs);
  const c10::Device device = check_device(options.device.value_or(options_.device));
  const at::Generator generator = this->generator(options.random_stream, device);
  const bool has_defaults =
      std::any_of(options.inputs.begin(), options.inputs.end(),
                  [](const TensorSpec& spec) { return bool(spec.default_value); });
  // Made now: checkpoints must have all generators from the first step on.
  const at::Generator defaults_draw_from =
      has_defaults ? this->generator(options.random_stream, at::kCPU) : at::Generator();
  OpBody body = complete(std::move(options.body), generator, options.inputs);
  auto state = std::make_shared<Op::State>(Op::State{.kind = Op::State::Kind::kProgram,
                                                     .name = std::move(options.name),
                                                     .device = device,
                                                     .inputs = std::move(options.inputs),
                                                     .body = std::move(body),
                                                     .feeder = std::move(options.feeder),
                                                     .generator = generator,
                                                     .defaults_draw_from = defaults_draw_from,
                                                     .tower = options.tower});
  build(*state);
  ops_.push_back(Op(std::move(state)));
  return ops_.back();
}

// On the graph's device named by its kind, not its number: a checkpoint may be resumed on another.
at::Generator Graph::generator(const std::string& stream, c10::Device device) {
  if (!device.is_cpu() && !device.is_cuda()) return {};  // nothing is drawn there
  const bool is_own = device == options_.device;
  const std::string place =
      is_own ? c10::DeviceTypeName(device.type(), /*lower_case=*/true) : device.str();
  const std::string name = stream + "/" + place;
  const auto found = kept_->generators.find(name);
  if (found != kept_->generators.end()) return found->second;
  const uint64_t seed =
      derive_seed(derive_seed(seed_, stream), static_cast<uint64_t>(options_.rank));
  return kept_->generators.emplace(name, make_generator(device, seed)).first->second;
}

void Graph::build(Op::State& state) {
  const PhaseLog phase(state.name, state.device, "building on a trial input");
  std::vector<at::Tensor> trial;
  for (const TensorSpec& spec : state.inputs) trial.push_back(spec.trial_value(state.device));
  const FailurePlace place;
  try {
    const FreshFrame frame;
    const StateGuard guard(*this, {state.generator});
    const LookupLog lookups;
    state.outputs = specs_of(state.body(trial));
    state.looked_up = lookups.names();
    const Drawing& drawing = ThreadFrame::current().get<Drawing>();
    logging::debug("Op '{}': {} new variables took {:.3f} s.", state.name, drawing.variables,
                   drawing.seconds);
  } catch (const Error&) {
    throw;  // already says where
  } catch (const InternalError&) {
    throw;
  } catch (const StopTraining&) {
    throw;
  } catch (const std::exception& error) {
    if (give_up_channels_last()) {
      logging::debug("Op '{}' cannot be built with channels_last weights: {}", state.name,
                     describe(error));
      return build(state);
    }
    const std::string in_place = place.to_string();
    throw make_error("define '" + state.name + "'",
                     "{} ({}{}while it was built on zeros for: {}. If only the size of the open "
                     "dimensions is to blame, set TensorSpec::trial_shape.)",
                     describe(error), in_place, in_place.empty() ? "" : ", ",
                     list_inputs(state.inputs));
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
  variables_.find_moved();
  return true;
}

void Graph::check_not_final(const std::string& name) const {
  TP_CHECK(!final_, "get_variable",
           "'{}' is new, and the graph is final. Create every variable while the graph is built: "
           "what the model creates must not depend on the data or on the step. {}",
           name, did_you_mean(name, variables_.names()));
}

Variable& Graph::adopt_variable(const std::string& name, const at::Tensor& tensor,
                                VariableRole role, const std::string& tower_prefix) {
  check_not_final(name);
  TP_CHECK(variables_.find(tower_prefix + name) == nullptr, "adopt",
           "there is already a variable '{}'. Adopt the module under another name.", name);
  return variables_.add(
      {.name = tower_prefix + name, .tensor = tensor, .role = role, .tower_prefix = tower_prefix});
}

c10::Device Graph::place_of_variable(c10::Device device) const {
  const std::vector<c10::Device>& devices = options_.variable_devices;
  if (devices.empty()) return device;
  std::vector<int64_t> elements(devices.size());
  for (const Variable& variable : variables_.all()) {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (variable.tensor.device() == devices[i]) elements[i] += variable.tensor.numel();
    }
  }
  const auto least = std::min_element(elements.begin(), elements.end());
  return devices[static_cast<size_t>(least - elements.begin())];
}

Variable& Graph::create_variable(const std::string& name, at::IntArrayRef shape,
                                 const VariableOptions& options, c10::Device device,
                                 const std::string& tower_prefix) {
  check_not_final(name);
  const Timer timer;
  const Unwatched unwatched;
  at::NoGradGuard no_grad;
  at::Tensor value;
  if (options.init) {
    // Drawn on the CPU, so that a seed gives the same model on every device.
    value = at::zeros(shape, at::TensorOptions(options.dtype));
    options.init(value, at::detail::createCPUGenerator(derive_seed(seed_, name)));
    value = value.to(device);
  } else {
    value = at::zeros(shape, at::TensorOptions(options.dtype).device(device));
  }
  if (options.channels_last && value.dim() == 4 && wants_channels_last()) {
    value = value.contiguous(at::MemoryFormat::ChannelsLast);
  }
  if (options.role == VariableRole::kTrainable) value.set_requires_grad(true);
  Drawing& drawing = ThreadFrame::current().get<Drawing>();
  drawing.seconds += timer.seconds();
  ++drawing.variables;
  return variables_.add({.name = tower_prefix + name,
                         .tensor = value,
                         .role = options.role,
                         .tower_prefix = tower_prefix});
}

std::unique_lock<std::recursive_mutex> Graph::lock_variables() const {
  TP_CHECK(locked_by_the_run != this, "graph",
           "a function that runs in a step of several towers asks for the variables of its own "
           "graph, as predictions do, and the step keeps them locked until it ends. Predict in the "
           "dataflow or in a callback.");
  std::unique_lock lock(variables_mutex_, std::defer_lock);
  lock_in_turn(lock, *this);
  return lock;
}

PartOfRunScope::PartOfRunScope(const Graph& graph)
    : outer_(std::exchange(locked_by_the_run, &graph)) {}

PartOfRunScope::~PartOfRunScope() { locked_by_the_run = outer_; }

}  // namespace tensorpack
