// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/session_init.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// TensorFlow calls the value of a variable `w:0`, the first output of `w`.
std::string without_output(const std::string& name) {
  return name.ends_with(":0") ? name.substr(0, name.size() - 2) : name;
}

NamedTensors without_outputs(const NamedTensors& values) {
  NamedTensors by_variable;
  for (const auto& [name, value] : values) {
    TP_CHECK(by_variable.emplace(without_output(name), value).second, "restore",
             "'{0}' and '{0}:0' are one variable, and both are given. Give one of them.",
             without_output(name));
  }
  return by_variable;
}

bool is_ignored(const RestoreOptions& options, const std::string& name) {
  return std::ranges::any_of(options.ignore, [&](const std::string& ignored) {
    return without_output(ignored) == without_output(name);
  });
}

bool may_cast(c10::ScalarType from, c10::ScalarType to) {
  if (c10::isFloatingType(from) && c10::isFloatingType(to)) return true;
  return c10::isIntegralType(from, false) && c10::isIntegralType(to, false) &&
         c10::elementSize(from) <= c10::elementSize(to);
}

// The value in the variable's shape and type, or undefined if it cannot be had.
at::Tensor fit(const Variable& variable, at::Tensor value, bool relaxed) {
  const at::Tensor& target = variable.tensor;
  if (value.sizes() == target.sizes() && value.scalar_type() == target.scalar_type()) return value;
  const std::string difference =
      fmt::format("'{}' is {} [{}] and the stored value {} [{}]", variable.name,
                  c10::toString(target.scalar_type()), fmt::join(target.sizes(), ", "),
                  c10::toString(value.scalar_type()), fmt::join(value.sizes(), ", "));
  TP_CHECK(relaxed, "restore",
           "{}. Load the checkpoint this model wrote, or set RestoreOptions::relaxed to reshape, "
           "cast and skip what does not fit.",
           difference);
  const bool fits =
      value.numel() == target.numel() && (value.scalar_type() == target.scalar_type() ||
                                          may_cast(value.scalar_type(), target.scalar_type()));
  if (!fits) {
    logging::warning("Not restored: {}.", difference);
    return {};
  }
  logging::warning("Restored with a change: {}.", difference);
  return value.reshape(target.sizes()).to(target.scalar_type());
}

// Names that only one side has. Of those that only training needs, who wants the weights alone need
// not be warned.
struct Unmatched {
  std::vector<std::string> weights;
  std::vector<std::string> training_only;

  void add(const std::string& name, bool is_training_only) {
    (is_training_only ? training_only : weights).push_back(name);
  }
  std::vector<std::string> all() const {
    std::vector<std::string> names = weights;
    names.insert(names.end(), training_only.begin(), training_only.end());
    return names;
  }
};

Unmatched missing_values(const Graph& graph, const NamedTensors& values,
                         const RestoreOptions& options) {
  Unmatched missing;
  for (const Variable& variable : graph.variables().all()) {
    if (!variable.is_saved() || is_ignored(options, variable.name)) continue;
    if (!values.contains(variable.name)) {
      missing.add(variable.name, variable.role == VariableRole::kGlobal);
    }
  }
  return missing;
}

Unmatched unused_values(const Graph& graph, const NamedTensors& values,
                        const std::set<std::string>& training_only, const RestoreOptions& options) {
  Unmatched unused;
  for (const auto& [name, value] : values) {
    const bool is_known = graph.variables().find(name) != nullptr;
    if (!is_known && !is_ignored(options, name)) unused.add(name, training_only.contains(name));
  }
  return unused;
}

void check_complete(const Unmatched& missing, const Unmatched& unused) {
  TP_CHECK(
      missing.all().empty() && unused.all().empty(), "restore",
      "training cannot go on exactly: the checkpoint has no value for {} of the graph ({}), and "
      "the graph has no variable for {} of the checkpoint ({}). Resume with the model and the "
      "optimizer that were saved, or load what fits with SaverRestore.",
      counted(std::ssize(missing.all()), "variable"), join(missing.all()),
      counted(std::ssize(unused.all()), "value"), join(unused.all()));
}

// Values of which the graph has not even one are those of another model.
void check_same_model(const Graph& graph, const Unmatched& missing, const Unmatched& unused,
                      const RestoreOptions& options) {
  const auto& variables = graph.variables().all();
  const auto weights =
      std::count_if(variables.begin(), variables.end(), [&](const Variable& variable) {
        return variable.is_saved() && variable.role != VariableRole::kGlobal &&
               !is_ignored(options, variable.name);
      });
  TP_CHECK(
      weights == 0 || unused.weights.empty() || std::ssize(missing.weights) < weights, "restore",
      "this is of another model: it has {}, and this one has {}. Load what this model saved, or "
      "translate the names (RestoreOptions::names).",
      join(unused.weights), join(missing.weights));
}

// Of an optimizer's state every variable of the model has a share.
std::string first_of(std::vector<std::string> names) {
  constexpr size_t kMost = 4;
  if (names.size() > kMost) {
    names.resize(kMost);
    names.emplace_back("...");
  }
  return join(names);
}

void tell(const Unmatched& missing, const Unmatched& unused) {
  if (!missing.weights.empty()) {
    logging::warning("What is restored has no value for {} of the graph, left as before: {}.",
                     counted(std::ssize(missing.weights), "variable"), join(missing.weights));
  }
  if (!unused.weights.empty()) {
    logging::warning("The graph has no variable for {} of what is restored, left unused: {}.",
                     counted(std::ssize(unused.weights), "value"), join(unused.weights));
  }
  const size_t left_out = missing.training_only.size() + unused.training_only.size();
  if (left_out > 0) {
    logging::info(
        "Of what only training needs (see RestoreOptions::training_state), {} of the graph began "
        "anew ({}), and {} of what is restored stayed unused ({}).",
        counted(std::ssize(missing.training_only), "variable"), join(missing.training_only),
        counted(std::ssize(unused.training_only), "value"), first_of(unused.training_only));
  }
}

// From names elsewhere to names here.
NamedTensors translate(const Graph& graph, const NamedTensors& values,
                       const std::set<std::string>& training_only, const RestoreOptions& options,
                       Unmatched& unused) {
  std::vector<std::string> names;
  for (const Variable& variable : graph.variables().all()) {
    if (variable.is_saved()) names.push_back(variable.name);
  }
  FromForeign translated = from_foreign(options.names, values, names);
  for (const std::string& name : translated.unused) {
    if (!is_ignored(options, name)) unused.add(name, training_only.contains(name));
  }
  return std::move(translated.ours);
}

// The shell does not expand `~` within quotes, and not in a flag such as --load=~/x.
std::filesystem::path with_home(const std::filesystem::path& path) {
  const std::string text = path.string();
  const auto home = env("HOME");
  if (!home || !(text == "~" || text.starts_with("~/"))) return path;
  return *home + text.substr(1);
}

// The counters of the sets of variables that an optimizer updates, by the name of the first:
// `Adam/step`, `Adam/step_1` and so on.
std::map<std::string, std::vector<const Variable*>> counters_of_sets(const Graph& graph) {
  std::map<std::string, std::vector<const Variable*>> counters;
  for (const Variable& variable : graph.variables().all()) {
    const size_t end = variable.name.rfind('_');
    if (end == std::string::npos || !variable.is_saved() || variable.owner == nullptr) continue;
    const Variable* first = graph.variables().find(variable.name.substr(0, end));
    const bool is_numbered = parse_integer(variable.name.substr(end + 1)).has_value();
    if (!is_numbered || first == nullptr || first->owner != variable.owner) continue;
    std::vector<const Variable*>& all = counters[first->name];
    if (all.empty()) all.push_back(first);
    all.push_back(&variable);
  }
  return counters;
}

// Before format 3, one counter counted the updates of all sets.
void divide_counters(const Graph& graph, NamedTensors& values) {
  for (const auto& [name, counters] : counters_of_sets(graph)) {
    const auto found = values.find(name);
    const bool is_divided = std::any_of(counters.begin() + 1, counters.end(), [&](auto* counter) {
      return values.contains(counter->name);
    });
    if (found == values.end() || is_divided) continue;
    const at::Tensor all = found->second;
    const at::Tensor each = all.div(std::ssize(counters), "floor").to(all.scalar_type());
    for (const Variable* counter : counters) values[counter->name] = each;
    logging::info(
        "'{}' of the checkpoint, {}, counted the updates of {}: each of them goes on from {}.",
        name, all.item<int64_t>(), counted(std::ssize(counters), "set") + " of variables",
        each.item<int64_t>());
  }
}

// Returns the weights without a value that fits.
std::vector<std::string> restore(Graph& graph, const NamedTensors& given,
                                 const std::set<std::string>& training_only,
                                 const RestoreOptions& options) {
  Unmatched unused;
  const NamedTensors values = options.names.empty()
                                  ? without_outputs(given)
                                  : translate(graph, given, training_only, options, unused);
  if (options.names.empty()) unused = unused_values(graph, values, training_only, options);
  const Unmatched missing = missing_values(graph, values, options);
  if (options.strict) check_complete(missing, unused);
  check_same_model(graph, missing, unused, options);
  std::vector<std::string> without_value;
  const auto lock = graph.lock_variables();
  for (const Variable& variable : graph.variables().all()) {
    const auto found = values.find(variable.name);
    if (found == values.end() || !variable.is_saved() || is_ignored(options, variable.name)) {
      continue;
    }
    const at::Tensor value = fit(variable, found->second, options.relaxed);
    if (value.defined()) {
      variable.assign(value);
    } else if (variable.role != VariableRole::kGlobal) {
      without_value.push_back(variable.name);
    }
  }
  tell(missing, unused);
  without_value.insert(without_value.end(), missing.weights.begin(), missing.weights.end());
  return without_value;
}

}  // namespace

std::vector<std::string> restore_checkpoint(Graph& graph, const Checkpoint& checkpoint,
                                            const RestoreOptions& options) {
  if (options.training_state || options.strict) {
    NamedTensors values = checkpoint.variables;
    if (checkpoint.format < 3) divide_counters(graph, values);
    return restore(graph, values, checkpoint.training_only, options);
  }
  NamedTensors weights = checkpoint.variables;
  for (const Variable& variable : graph.variables().all()) {
    if (variable.role == VariableRole::kGlobal) weights.erase(variable.name);
  }
  return restore(graph, weights, checkpoint.training_only, options);
}

DictRestore::DictRestore(NamedTensors values, RestoreOptions options)
    : values_(std::move(values)), options_(std::move(options)) {}

void DictRestore::init(Graph& graph) { missing_ = restore(graph, values_, {}, options_); }

SaverRestore::SaverRestore(std::filesystem::path path, RestoreOptions options)
    : path_(std::move(path)), options_(std::move(options)) {}

void SaverRestore::init(Graph& graph) {
  if (is_weights_file(path_)) {
    logging::info("Restoring the weights in {}.", path_.string());
    missing_ = restore(graph, read_weights(path_), {}, options_);
    return;
  }
  const Checkpoint checkpoint = load_checkpoint(path_);
  logging::info("Restoring the checkpoint of step {} from {}.", checkpoint.global_step,
                path_.string());
  missing_ = restore_checkpoint(graph, checkpoint, options_);
}

void ChainInit::init(Graph& graph) {
  for (SessionInit& init : inits_) init.init(graph);
}

std::optional<StateTexts> ChainInit::callback_states() const {
  std::optional<StateTexts> states;
  for (const SessionInit& init : inits_) {
    if (auto later = init.callback_states()) states = std::move(later);
  }
  return states;
}

std::optional<SavedProgram> ChainInit::saved_program() const {
  std::optional<SavedProgram> program;
  for (const SessionInit& init : inits_) {
    if (auto later = init.saved_program()) program = std::move(later);
  }
  return program;
}

std::vector<std::string> ChainInit::missing() const {
  std::vector<std::string> names;
  for (const SessionInit& init : inits_) {
    for (std::string& name : init.missing()) names.push_back(std::move(name));
  }
  return names;
}

Owned<SessionInit> smart_init(const std::filesystem::path& path, RestoreOptions options) {
  if (path.empty()) return nullptr;
  return SaverRestore(with_home(path), std::move(options));
}

Owned<SessionInit> smart_init(const std::vector<std::filesystem::path>& paths,
                              RestoreOptions options) {
  OwnedList<SessionInit> inits;
  for (const std::filesystem::path& path : paths) {
    if (!path.empty()) inits.add(SaverRestore(with_home(path), options));
  }
  if (inits.empty()) return nullptr;
  return ChainInit(std::move(inits));
}

Owned<SessionInit> smart_init(std::initializer_list<std::filesystem::path> paths,
                              RestoreOptions options) {
  return smart_init(std::vector<std::filesystem::path>(paths), std::move(options));
}

Owned<SessionInit> smart_init(NamedTensors values, RestoreOptions options) {
  return DictRestore(std::move(values), std::move(options));
}

}  // namespace tensorpack
