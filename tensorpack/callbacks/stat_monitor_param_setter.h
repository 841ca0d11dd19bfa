// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/callbacks/detail/awaited_scalar.h"
#include "tensorpack/callbacks/hyper_param_setter.h"

namespace tensorpack {

struct StatMonitorParamSetterOptions {
  /// The scalar to watch.
  std::string stat_name = {};
  /// The new value, from the old.
  std::function<double(double old_value)> value_func = {};
  /// How much the scalar must fall to count as better.
  double threshold = 0;
  /// Within how many reports. With 1 every report changes the value: none is better than itself.
  int64_t last_k = 0;
  /// It is rising that counts.
  bool reverse = false;
};

/// Changes a hyper-parameter when a scalar does not get better any more:
///
///   StatMonitorParamSetter("learning_rate", {.stat_name = "validation_error",
///                                            .value_func = [](double lr) { return lr * 0.2; },
///                                            .threshold = 1e-3,
///                                            .last_k = 10})
///
/// Put it behind what reports the scalar. After a change it counts anew. What it has seen is in
/// checkpoints. Of several processes the chief decides for all.
class StatMonitorParamSetter final : public HyperParamSetter {
 public:
  StatMonitorParamSetter(AnyHyperParam param, StatMonitorParamSetterOptions options);

  void before_train() override;
  void after_train() override { scalar_.check_after(trainer()); }
  std::vector<std::string> fingerprint() const override;
  std::string save_state() const override;
  void load_state(const std::string& state) override;

 protected:
  std::optional<double> next_value() override;
  bool is_decided_by_chief() const override { return true; }

 private:
  bool is_better() const;

  StatMonitorParamSetterOptions options_;
  AwaitedScalar scalar_;
  std::vector<double> seen_;  // the last ones, oldest first
  int64_t last_step_ = -1;    // of the newest
};

}  // namespace tensorpack
