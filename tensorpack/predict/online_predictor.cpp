// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/online_predictor.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tensorpack/graph/left_out_inputs.h"
#include "tensorpack/predict/detail/needs.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  names.reserve(specs.size());
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

// An output that needs an input which is left out is an error here.
void check_left_out(const detail::Needs& needs, const std::vector<TensorSpec>& left_out,
                    const PredictorOptions& options) {
  for (const std::string& output : options.output_names) {
    for (const TensorSpec& input : left_out) {
      TP_CHECK(!needs.needs_input(output, input.name), "predictor",
               "the output '{}' depends on the input '{}', which is not among the predictor's "
               "inputs ({}). Add it.",
               output, input.name, join(options.input_names, ", "));
    }
  }
}

// What the function computes from an input, for messages.
std::vector<std::string> computed_from(const detail::Needs& needs, const Op& op,
                                       const std::string& input) {
  std::vector<std::string> names;
  for (const auto& [name, spec] : op.outputs()) {
    if (!op.has_input(name) && needs.needs_input(name, input)) names.push_back(name);
  }
  return names;
}

std::vector<at::Tensor> in_order(const std::vector<TensorSpec>& specs, const Feeds& feeds) {
  std::vector<at::Tensor> tensors(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto fed = feeds.find(specs[i].name);
    if (fed != feeds.end()) tensors[i] = fed->second;
  }
  return tensors;
}

// No size that is guessed is to blame for what this throws.
void check_given(const std::vector<TensorSpec>& specs, const Feeds& given) {
  for (const TensorSpec& spec : specs) {
    const auto found = given.find(spec.name);
    if (found != given.end()) spec.check(found->second);
  }
}

bool is_open(const TensorSpec& spec) {
  return std::find(spec.shape.begin(), spec.shape.end(), -1) != spec.shape.end();
}

}  // namespace

OnlinePredictor::OnlinePredictor(Graph& graph, TowerHandle tower, PredictorOptions options,
                                 std::function<Session&()> session)
    : tower_(std::move(tower)), options_(std::move(options)), session_(std::move(session)) {
  const Op& op = tower_.op();
  const std::vector<std::string> inputs = names_of(op.inputs());
  if (options_.input_names.empty()) options_.input_names = inputs;
  TP_CHECK(!options_.output_names.empty(), "predictor",
           "there are no outputs. Name at least one tensor of the model.");
  for (const std::string& name : options_.input_names) {
    TP_CHECK(contains(inputs, name), "predictor", "no input named '{}'. {}", name,
             did_you_mean(name, inputs));
    TP_CHECK(std::count(options_.input_names.begin(), options_.input_names.end(), name) == 1,
             "predictor", "the input '{}' is named twice. Name each input once.", name);
  }
  for (const std::string& name : options_.output_names) {
    tower_.check_tensor(name, "predictor '" + op.name() + "'");
  }
  for (const TensorSpec& spec : op.inputs()) {
    if (contains(options_.input_names, spec.name) || spec.default_value) continue;
    left_out_.push_back(spec);
  }
  if (left_out_.empty()) return;
  auto needs = std::make_shared<const detail::Needs>(graph, op);
  if (!needs->are_known()) return;
  check_left_out(*needs, left_out_, options_);
  if (std::any_of(left_out_.begin(), left_out_.end(), is_open)) needs_ = std::move(needs);
}

std::vector<at::Tensor> OnlinePredictor::operator()(const std::vector<at::Tensor>& inputs) const {
  TP_CHECK(inputs.size() == options_.input_names.size(), "predictor",
           "it takes {} ({}) and was called with {}. Pass one per input.",
           counted(std::ssize(options_.input_names), "tensor"), join(options_.input_names, ", "),
           inputs.size());
  Session& session = session_();
  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) feeds.emplace(options_.input_names[i], inputs[i]);
  const Op& op = tower_.op();
  const bool has_guessed = std::any_of(left_out_.begin(), left_out_.end(), is_open);
  if (has_guessed) check_given(op.inputs(), feeds);
  const std::vector<at::Tensor> given = in_order(op.inputs(), feeds);
  for (const TensorSpec& spec : left_out_) {
    const Shape shape = shape_of_left_out(spec, op.inputs(), given);
    feeds.emplace(spec.name, at::zeros(shape, at::TensorOptions(spec.dtype).device(op.device())));
  }
  if (!has_guessed) return session.run(op, options_.output_names, feeds).get();
  try {
    return session.run(op, options_.output_names, feeds).get();
  } catch (...) {
    rethrow_with(place_of_left_out(feeds));
  }
}

std::string OnlinePredictor::place_of_left_out(const Feeds& feeds) const {
  std::vector<std::string> texts;
  for (const TensorSpec& spec : left_out_) {
    if (!is_open(spec)) continue;
    std::string text = fmt::format("the input '{}', which is left out and is zeros of [{}] here",
                                   spec.name, fmt::join(feeds.at(spec.name).sizes(), ", "));
    std::vector<std::string> needing;
    if (needs_) needing = computed_from(*needs_, tower_.op(), spec.name);
    if (!needing.empty()) {
      text += fmt::format(" ('{}' is computed from it)", fmt::join(needing, "', '"));
    }
    texts.push_back(std::move(text));
  }
  return fmt::format(
      "with {}. If that size is to blame, name the input among the predictor's inputs, or do not "
      "use it in prediction (is_training())",
      join(texts, ", and "));
}

}  // namespace tensorpack
