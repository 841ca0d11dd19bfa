// SPDX-License-Identifier: Apache-2.0
// What is computed from a pass over validation data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Belongs to an InferenceRunner, which calls, on the training thread:
///
///   check()                  // once, before training
///   for each pass:
///     before_inference()
///     for each datapoint:
///       on_fetches()
///     after_inference()
class Inferencer {
 public:
  virtual ~Inferencer() = default;

  /// The tensors, inputs or variables of the tower to be given to on_fetches(). Always the same.
  virtual std::vector<std::string> fetches() const = 0;

  /// Throws an Error when a fetch is not what this class can use. Fetches are known to exist, and
  /// `specs` says what each looked like for the trial input.
  virtual void check(const std::vector<TensorSpec>& /*specs*/) const {}

  virtual void before_inference() {}

  /// The values of the fetches, in their order, for one datapoint.
  virtual void on_fetches(const std::vector<at::Tensor>& values) = 0;

  /// All names that after_inference() may report, or none if they are not known before. Two
  /// inferencers of a training must not have one in common.
  virtual std::vector<std::string> reports() const { return {}; }

  /// What the pass came to; each entry goes to the monitors.
  virtual std::map<std::string, double> after_inference() { return {}; }

  /// The class's name, for messages.
  virtual std::string name() const;

  /// on_fetches() for a datapoint of so many samples.
  void take(const std::vector<at::Tensor>& values, int64_t samples) {
    samples_ = samples;
    on_fetches(values);
  }

 protected:
  /// How many samples the datapoint has that on_fetches() is given: the weight of a mean over it.
  /// See InferenceRunnerOptions::count_samples.
  int64_t samples() const { return samples_; }

 private:
  int64_t samples_ = 1;
};

}  // namespace tensorpack
