// SPDX-License-Identifier: Apache-2.0
// Predictions with the variables of a training that goes on.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_handle.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

namespace detail {
class Needs;
}

struct PredictorOptions {
  /// The inputs a call gives, in this order; all inputs of the tower when empty.
  std::vector<std::string> input_names = {};
  /// The tensors a call returns, in this order: named tensors, inputs or variables.
  std::vector<std::string> output_names = {};
};

/// A prediction tower as a function from tensors to tensors.
///
/// Inputs that are left out have their default (TensorSpec::default_value), or else are filled with
/// zeros. Open dimensions of theirs get the sizes that the inputs given have in the same place, if
/// their trial shapes agree there; without one, the sizes of the trial shape. Throws an Error when
/// it is made if a name is unknown or an output depends on an input that is left out and has no
/// default, and when it is called if the session does not exist yet or the number of tensors is
/// wrong.
class OnlinePredictor {
 public:
  /// `session` is asked at every call; `graph` is the one of the tower.
  OnlinePredictor(Graph& graph, TowerHandle tower, PredictorOptions options,
                  std::function<Session&()> session);

  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;
  /// `predict(image, mask)`.
  template <std::convertible_to<at::Tensor>... Tensors>
  std::vector<at::Tensor> operator()(const Tensors&... inputs) const {
    return (*this)(std::vector<at::Tensor>{inputs...});
  }

  const TowerHandle& tower() const { return tower_; }
  const std::vector<std::string>& input_names() const { return options_.input_names; }
  const std::vector<std::string>& output_names() const { return options_.output_names; }

 private:
  // Where a run failed: with which inputs left out.
  std::string place_of_left_out(const Feeds& feeds) const;

  TowerHandle tower_;
  PredictorOptions options_;
  std::vector<TensorSpec> left_out_;
  std::shared_ptr<const detail::Needs> needs_;  // for messages; null if nothing is known
  std::function<Session&()> session_;
};

}  // namespace tensorpack
