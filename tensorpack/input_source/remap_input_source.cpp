// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/remap_input_source.h"

#include <algorithm>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

RemappedInput::RemappedInput(Owned<InputSource> source, const std::vector<TensorSpec>& inputs,
                             std::vector<std::string> names)
    : ProxyInputSource(std::move(source)), names_(std::move(names)), inputs_(inputs.size()) {
  std::vector<std::string> known;
  for (const TensorSpec& input : inputs) known.push_back(input.name);
  for (const std::string& name : names_) {
    const auto found = std::find(known.begin(), known.end(), name);
    TP_CHECK(found != known.end(), "remap_input_source", "the model has no input '{}'. {}", name,
             did_you_mean(name, known));
    const auto place = static_cast<size_t>(found - known.begin());
    TP_CHECK(std::find(places_.begin(), places_.end(), place) == places_.end(),
             "remap_input_source", "'{}' is named twice. Name each input once.", name);
    places_.push_back(place);
  }
}

std::optional<DataPoint> RemappedInput::next() {
  std::optional<DataPoint> batch = source().next();
  if (!batch) return std::nullopt;
  TP_CHECK(batch->size() == names_.size(), "remap_input_source",
           "a datapoint of {} has {}, and names are given for {} ({}). Name one for each "
           "component.",
           name(), counted(std::ssize(*batch), "component"), names_.size(), join(names_, ", "));
  DataPoint remapped{std::vector<at::Tensor>(inputs_)};
  for (size_t i = 0; i < places_.size(); ++i) remapped[places_[i]] = std::move((*batch)[i]);
  return remapped;
}

RemappedInput remap_input_source(Owned<InputSource> source, const std::vector<TensorSpec>& inputs,
                                 std::vector<std::string> names) {
  return RemappedInput(std::move(source), inputs, std::move(names));
}

}  // namespace tensorpack
