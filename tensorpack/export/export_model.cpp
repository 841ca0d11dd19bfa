// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/export_model.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "tensorpack/checkpoint/detail/malformed.h"
#include "tensorpack/export/detail/program_function.h"
#include "tensorpack/export/detail/program_recording.h"
#include "tensorpack/export/exported_program.h"
#include "tensorpack/export/program_file.h"
#include "tensorpack/graph/left_out_inputs.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/session/function_scope.h"
#include "tensorpack/tower/define_tower.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

constexpr const char* kWhere = "export_model";

// Closes every open dimension but one, the first: that is the batch.
void leave_the_batch_open(TensorSpec& spec) {
  bool has_batch = false;
  for (size_t dim = 0; dim < spec.shape.size(); ++dim) {
    if (spec.shape[dim] != -1) continue;
    if (!has_batch) {
      has_batch = true;
      continue;
    }
    TP_CHECK(!spec.trial_shape.empty(), kWhere,
             "the input '{}' has several open dimensions ({}), and one of them is the batch. Give "
             "the others a size, or all of them by TensorSpec::trial_shape.",
             spec.name, spec.to_string());
    spec.shape[dim] = spec.trial_shape[dim];
  }
}

int64_t batch_dimension(const TensorSpec& spec) {
  const auto found = std::find(spec.shape.begin(), spec.shape.end(), -1);
  return found == spec.shape.end() ? -1 : found - spec.shape.begin();
}

// The batch that trial shapes ask for; 1 if they do not.
int64_t unit_of(const std::vector<TensorSpec>& inputs) {
  int64_t unit = 1;
  for (const TensorSpec& spec : inputs) {
    const int64_t dim = batch_dimension(spec);
    if (spec.trial_shape.empty() || dim < 0) continue;
    const int64_t size = spec.trial_shape[static_cast<size_t>(dim)];
    TP_CHECK(unit == 1 || unit == size, kWhere,
             "the trial shapes of the inputs have batches of {} and {}. Give them one.", unit,
             size);
    unit = size;
  }
  return unit;
}

// The graph is built on a batch of the same size in all inputs.
void set_trial_batch(TensorSpec& spec, int64_t size) {
  if (spec.trial_shape.empty()) spec.trial_shape = spec.shape;
  const int64_t dim = batch_dimension(spec);
  if (dim >= 0) spec.trial_shape[static_cast<size_t>(dim)] = size;
}

// An input that has a default and is not asked for becomes a part of the program.
void compute_defaults(PredictConfig& config) {
  const std::vector<TensorSpec> all = std::exchange(config.inputs, {});
  const std::vector<std::string>& wanted = config.input_names;
  std::vector<char> is_given;
  for (const TensorSpec& spec : all) {
    const bool is_wanted = std::find(wanted.begin(), wanted.end(), spec.name) != wanted.end();
    is_given.push_back(!spec.default_value || wanted.empty() || is_wanted);
    if (is_given.back()) config.inputs.push_back(spec);
  }
  if (config.inputs.size() == all.size()) return;
  config.tower_func.check_arity(all);
  config.tower_func = [all, is_given, function = std::move(config.tower_func)](
                          const std::vector<at::Tensor>& inputs) {
    std::vector<at::Tensor> given(all.size());
    auto input = inputs.begin();
    for (size_t i = 0; i < all.size(); ++i) {
      if (is_given[i]) given[i] = *input++;
    }
    std::vector<at::Tensor> completed = given;
    for (size_t i = 0; i < all.size(); ++i) {
      if (is_given[i]) continue;
      completed[i] = all[i].default_value(shape_of_left_out(all[i], all, given), all[i].dtype);
    }
    return function(completed);
  };
}

// Values in [0, 1), zeros for integers: those are valid as indices.
std::vector<at::Tensor> batch_of(const std::vector<TensorSpec>& inputs, int64_t size) {
  std::vector<at::Tensor> batch;
  for (const TensorSpec& spec : inputs) {
    Shape shape = spec.shape;
    std::replace(shape.begin(), shape.end(), int64_t{-1}, size);
    at::Tensor value = at::zeros(shape, spec.dtype);
    if (value.is_floating_point()) {
      value.copy_(at::arange(value.numel(), at::kDouble).mul_(0.618034).frac_().view(shape));
    }
    batch.push_back(value);
  }
  return batch;
}

// What the outputs need, alone. Random numbers that nobody reads are not drawn.
void cut_to(Trace& trace, const std::vector<std::string>& outputs) {
  for (Node& node : trace.nodes) node.is_random = false;
  eliminate_dead_code(trace, outputs);
}

void check_outputs(const Op& op, const std::vector<std::string>& outputs) {
  std::set<std::string> distinct;
  for (const std::string& name : outputs) {
    TP_CHECK(op.has_output(name) && !op.has_input(name), kWhere,
             "the output '{}' is an input or a variable. Name tensors that the model computes.",
             name);
    TP_CHECK(distinct.insert(name).second, kWhere,
             "the output '{}' is asked for twice. Once will do.", name);
  }
}

// Operators of libraries that the model's program uses. Whether a file may call them is for the one
// to say who loads it.
std::vector<std::string> more_operators(const ExportedProgram& program,
                                        const ExportOptions& options) {
  std::vector<std::string> names = options.operators;
  for (const ExportedNode& node : program.nodes) {
    if (!node.op.starts_with("aten::")) names.push_back(node.op);
  }
  return names;
}

// Above all, the check of what no recording can see: decisions that host code took.
void check_program(const ExportedProgram& program, const Op& op,
                   const std::vector<std::string>& outputs, int64_t size,
                   const ExportOptions& options) {
  const std::vector<at::Tensor> inputs = batch_of(op.inputs(), size);
  std::vector<at::Tensor> taken;
  for (const ExportedInput& input : program.inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (op.inputs()[i].name == input.spec.name) taken.push_back(inputs[i].clone());
    }
  }
  const NamedTensors expected = op.run_body(inputs, outputs);
  const std::vector<at::Tensor> found = [&] {
    at::NoGradGuard no_grad;
    try {
      return detail::ProgramFunction(program, at::kCPU, more_operators(program, options))(taken);
    } catch (const detail::Malformed& e) {
      throw make_error(kWhere,
                       "{}. Write the model without it, run it by an OfflinePredictor, or name the "
                       "operator in ExportOptions::operators and ExportedModelOptions::operators.",
                       e.what());
    }
  }();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& value = expected.at(outputs[i]);
    TP_CHECK(
        found[i].sizes() == value.sizes() &&
            at::allclose(found[i], value, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true),
        kWhere,
        "the program gives other numbers for '{}' than the model, with a batch of {}. The model "
        "decides something on the host, from data or in a variable of its own: keep it in "
        "tensors.",
        outputs[i], size);
  }
}

// While it lives, functions are not made of operators that only a CPU with oneDNN has.
class WithoutOneDnn {
 public:
  WithoutOneDnn() : before_(at::globalContext().userEnabledMkldnn()) {
    at::globalContext().setUserEnabledMkldnn(false);
  }
  ~WithoutOneDnn() { at::globalContext().setUserEnabledMkldnn(before_); }
  WithoutOneDnn(const WithoutOneDnn&) = delete;
  WithoutOneDnn& operator=(const WithoutOneDnn&) = delete;

 private:
  bool before_;
};

}  // namespace

ExportedProgram export_program(PredictConfig config, const ExportOptions& options) {
  TP_CHECK(config.session.precision != Precision::kFloat16, kWhere,
           "models are recorded on the CPU, which cannot do float16. Use bfloat16.");
  for (TensorSpec& spec : config.inputs) leave_the_batch_open(spec);
  compute_defaults(config);
  const int64_t unit = unit_of(config.inputs);
  for (TensorSpec& spec : config.inputs) set_trial_batch(spec, 2 * unit);
  config.graph.device = at::kCPU;
  config.graph.variable_devices.clear();
  Graph graph(config.graph);
  detail::restore_moving_averages(graph);
  const TowerHandle tower =
      define_tower(graph, {.is_training = false},
                   {.op_name = "export", .inputs = config.inputs, .function = config.tower_func});
  detail::init_variables(config, graph, tower.op());
  graph.finalize();
  const OnlinePredictor checked(
      graph, tower,
      {.input_names = std::move(config.input_names), .output_names = config.output_names}, {});
  const Op& op = tower.op();
  const std::vector<std::string>& outputs = checked.output_names();
  check_outputs(op, outputs);

  const FunctionScope scope(config.session.precision);
  const StateGuard guard(graph, {op.state().generator});
  const WithoutOneDnn portable;
  std::vector<Trace> traces;
  for (int64_t batch : detail::kRecordedBatches) {
    const std::vector<at::Tensor> inputs = batch_of(op.inputs(), batch * unit);
    traces.push_back(record_op(graph, op, inputs).recording.trace);
    cut_to(traces.back(), outputs);
  }
  ExportedProgram program = detail::generalize(traces, op.inputs(), outputs, unit);
  check_program(program, op, outputs, 2 * unit, options);
  return program;
}

void export_model(PredictConfig config, const std::filesystem::path& path,
                  const ExportOptions& options) {
  write_program(path, export_program(std::move(config), options));
}

}  // namespace tensorpack
