// SPDX-License-Identifier: Apache-2.0
// What of the training tower is worth watching.
#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct MovingSummaryOptions {
  /// How much of the average is kept at each run, in [0, 1).
  double decay = 0.95;
};

/// Keeps a moving average of a scalar under `name`, for MergeAllSummaries to report.
///
/// Called in a tower function; does nothing but in the first training tower. The average is updated
/// by the op itself, at every run, in the variable `EMA/<name>`, which is not saved; the first
/// value counts in full. Throws Error when the tensor is not a scalar or the name is taken. In a
/// scope that is used again (Reuse), what its first use reported stays, and a warning says so.
void add_moving_summary(const std::string& name, const at::Tensor& scalar,
                        MovingSummaryOptions options = {});

/// The same for tensors that have a name: `add_moving_summary(cost, accuracy)`. Throws Error for
/// one that was not given to named().
template <std::same_as<at::Tensor>... Tensors>
void add_moving_summary(const at::Tensor& first, const Tensors&... others);

/// Reports the pictures in a tensor of [N, C, H, W] with 1, 3 or 4 channels, or [N, H, W], as
/// `name/0`, `name/1` ...; at most `max_images` of them, and one as `name`. Values are in 0..255.
///
/// Like all functions below: called in a tower function, does nothing but in the first training
/// tower, and costs nothing but in the steps in which MergeAllSummaries reports. Throws Error when
/// the name is taken, but for a scope that is used again, as above.
void add_image_summary(const std::string& name, const at::Tensor& images, int64_t max_images = 3);

/// What to say of the values of a tensor, and what is put behind its name.
enum class SummaryType {
  kScalar,     ///< the value, of a scalar: "-summary"
  kHistogram,  ///< "-histogram"
  kSparsity,   ///< the share of zeros: "-sparsity"
  kMean,       ///< "-mean"
  kRms,        ///< the root of the mean square: "-rms"
};
using SummaryTypes = std::vector<SummaryType>;

/// Reports a tensor of a step, as `<name>-histogram` and the like.
void add_tensor_summary(const std::string& name, const at::Tensor& tensor, SummaryTypes types);

/// The same under `activation-summary/`, for a tensor of two dimensions or more. Another one is
/// left out, with a warning.
void add_activation_summary(const std::string& name, const at::Tensor& activation,
                            SummaryTypes types = {SummaryType::kSparsity, SummaryType::kRms,
                                                  SummaryType::kHistogram});

struct ParamSummary {
  std::string regex = {};
  SummaryTypes types = {SummaryType::kHistogram, SummaryType::kRms};
};

/// Reports the trainable variables whose whole names match a regular expression, under
/// `param-summary/`: add_param_summary({{".*/W"}}). That there is none is a warning in the log.
void add_param_summary(const std::vector<ParamSummary>& params);

/// Reports a text, once, before training.
void add_text(const std::string& name, const std::string& text);

/// The newest value of every moving average of the graph that has one, by name.
std::vector<std::pair<std::string, double>> moving_summaries(const Graph& graph);

namespace detail {

/// What the functions above were asked for, kept with the graph for MergeAllSummaries.
struct TensorSummary {
  std::string name = {};
  std::string fetch = {};  // the tensor's name in ops
  bool is_image = false;
  SummaryType type = SummaryType::kScalar;  // of others
};
struct Summaries {
  std::vector<TensorSummary> tensors = {};
  std::vector<ParamSummary> params = {};
  std::vector<std::pair<std::string, std::string>> texts = {};
};
Summaries& summaries_of(Graph& graph);

/// One number that says something of a tensor.
double summarize(const at::Tensor& values, SummaryType type);
/// "-rms" and the like.
std::string suffix_of(SummaryType type);

void add_named_moving_summary(const at::Tensor& scalar);

}  // namespace detail

template <std::same_as<at::Tensor>... Tensors>
void add_moving_summary(const at::Tensor& first, const Tensors&... others) {
  detail::add_named_moving_summary(first);
  (detail::add_named_moving_summary(others), ...);
}

}  // namespace tensorpack
