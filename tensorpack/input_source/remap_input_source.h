// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/input_source/proxy_input_source.h"

namespace tensorpack {

/// See remap_input_source().
class RemappedInput final : public ProxyInputSource {
 public:
  RemappedInput(Owned<InputSource> source, const std::vector<TensorSpec>& inputs,
                std::vector<std::string> names);

  /// One tensor for each input of the model; undefined for those that the source does not feed.
  std::optional<DataPoint> next() override;

 private:
  std::vector<std::string> names_;
  std::vector<size_t> places_;  // of the source's components, among the inputs
  size_t inputs_;
};

/// Gives component i of the source's batches to the input called names[i]: for data whose order is
/// not that of the model, or that does not have all of its inputs.
///
///   remap_input_source(QueueInput(flow), model.inputs, {"label", "image"})
///
/// An input that is not among the names has to be fed in every run, as Callback::before_run() does
/// with {.feeds = {{"noise", z}}}. Throws an Error if there is no input of such a name.
RemappedInput remap_input_source(Owned<InputSource> source, const std::vector<TensorSpec>& inputs,
                                 std::vector<std::string> names);

}  // namespace tensorpack
