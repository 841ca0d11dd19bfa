// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/online_predictor.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

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

// The batch that is given: the first dimension of an input where it is open, or else of any.
std::optional<int64_t> given_batch(const std::vector<TensorSpec>& specs, const Feeds& feeds) {
  std::optional<int64_t> batch;
  for (const TensorSpec& spec : specs) {
    const auto given = feeds.find(spec.name);
    if (given == feeds.end() || !given->second.defined() || given->second.dim() == 0) continue;
    const bool is_open = !spec.shape.empty() && spec.shape[0] == -1;
    if (is_open) return given->second.size(0);
    if (!batch) batch = given->second.size(0);
  }
  return batch;
}

Shape trial_shape_of(const TensorSpec& spec) { return spec.trial_value(c10::kMeta).sizes().vec(); }

// The size of an open inner dimension of an input, from what is given: that of the inputs which
// have as many dimensions and leave the same one open, or else of all that are open; nullopt where
// these differ. Dimensions that have other sizes in the trial shapes are others.
std::optional<int64_t> given_size(const TensorSpec& input, size_t dim,
                                  const std::vector<TensorSpec>& specs, const Feeds& feeds) {
  const int64_t trial_size = trial_shape_of(input)[dim];
  std::set<int64_t> same_place, all;
  for (const TensorSpec& spec : specs) {
    const auto given = feeds.find(spec.name);
    if (given == feeds.end() || !given->second.defined()) continue;
    if (given->second.dim() != std::ssize(spec.shape)) continue;  // an error of the session
    const Shape trial = trial_shape_of(spec);
    for (size_t d = 1; d < spec.shape.size(); ++d) {
      if (spec.shape[d] != -1 || trial[d] != trial_size) continue;
      const int64_t size = given->second.size(static_cast<int64_t>(d));
      if (d == dim && spec.shape.size() == input.shape.size()) same_place.insert(size);
      all.insert(size);
    }
  }
  const std::set<int64_t>& sizes = same_place.empty() ? all : same_place;
  return sizes.size() == 1 ? std::optional(*sizes.begin()) : std::nullopt;
}

// Of the sizes that the other inputs have, or else of its trial shape.
at::Tensor zeros_for(const TensorSpec& input, const std::vector<TensorSpec>& specs,
                     const Feeds& feeds, c10::Device device) {
  const at::Tensor trial = input.trial_value(device);
  Shape shape = trial.sizes().vec();
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    if (input.shape[dim] != -1) continue;
    const auto size = dim == 0 ? given_batch(specs, feeds) : given_size(input, dim, specs, feeds);
    shape[dim] = size.value_or(shape[dim]);
  }
  return shape == trial.sizes() ? trial : trial.new_zeros(shape);
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
    if (!contains(options_.input_names, spec.name)) left_out_.push_back(spec);
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
  const Feeds given = feeds;
  for (const TensorSpec& spec : left_out_) {
    feeds.emplace(spec.name, zeros_for(spec, op.inputs(), given, op.device()));
  }
  const bool has_guessed = std::any_of(left_out_.begin(), left_out_.end(), is_open);
  if (!has_guessed) return session.run(op, options_.output_names, feeds);
  try {
    return session.run(op, options_.output_names, feeds);
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
