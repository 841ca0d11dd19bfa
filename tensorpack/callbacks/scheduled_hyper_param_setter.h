// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tensorpack/callbacks/hyper_param_setter.h"
#include "tensorpack/callbacks/schedule.h"

namespace tensorpack {

enum class Interp {
  kNone,    ///< jumps at the points
  kLinear,  ///< straight lines between the points
};

struct ScheduledHyperParamSetterOptions {
  Interp interp = Interp::kNone;
  /// Points are numbers of steps (global_step) instead of epochs.
  bool step_based = false;
  /// When a training starts after some points, with another value than they gave: set it right,
  /// with a warning. Otherwise only say so. At a point, its value is set as usual.
  bool set_at_beginning = true;
};

/// Sets a hyper-parameter by a schedule:
///
///   ScheduledHyperParamSetter("learning_rate", {{30, 0.01}, {60, 0.001}})
///
/// A value counts after its epoch (or step) was made; 0 is before the first one. Before the first
/// point and after the last the parameter is left alone. With a function (see schedule.h) there is
/// a value for every time. Of two setters of one parameter, the later in the list wins when a
/// training is resumed.
class ScheduledHyperParamSetter final : public HyperParamSetter {
 public:
  using Points = std::vector<std::pair<int64_t, double>>;

  ScheduledHyperParamSetter(AnyHyperParam param, Points points,
                            ScheduledHyperParamSetterOptions options = {});
  ScheduledHyperParamSetter(AnyHyperParam param, Schedule schedule,
                            ScheduledHyperParamSetterOptions options = {});

  void before_train() override;
  void trigger_step() override;
  void trigger_epoch() override;
  /// The points, or the values of the function at some times until the end.
  std::vector<std::string> fingerprint() const override;

 protected:
  std::optional<double> next_value() override;

 private:
  int64_t now() const { return options_.step_based ? global_step() : epoch_num(); }
  bool is_at_point() const;
  std::optional<double> value_between_points(int64_t time) const;
  std::optional<double> replayed_value(int64_t time) const;

  Points points_;      // or ...
  Schedule schedule_;  // ... a function
  ScheduledHyperParamSetterOptions options_;
};

}  // namespace tensorpack
