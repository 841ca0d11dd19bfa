// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/callbacks/hyper_param.h"

namespace tensorpack {

/// Sets a hyper-parameter before training and whenever triggered. A change is told in the log, once
/// an epoch at most; the value at the end of every epoch is reported as a scalar of its name. Runs
/// in every process; derive from it and say what the value is.
class HyperParamSetter : public Callback {
 public:
  explicit HyperParamSetter(AnyHyperParam param);

  ReportedScalars reports() const override;
  void setup_graph() override;
  void before_train() override;
  void after_epoch() override;
  void trigger() override;
  /// The value, if checkpoints do not have it anyway.
  std::string save_state() const override;
  void load_state(const std::string& state) override;

 protected:
  /// The new value; nothing to leave it as it is.
  virtual std::optional<double> next_value() = 0;
  /// Whether next_value() may differ between processes: then the others take the chief's.
  virtual bool is_decided_by_chief() const { return false; }

  HyperParam& param() const { return *param_; }
  void set(double value);

 private:
  void assign(double value);

  AnyHyperParam param_;
  std::optional<double> last_set_;
  int64_t last_told_ = -1;  // the epoch
};

struct HyperParamSetterWithFuncOptions {
  /// Of several processes the chief alone calls the function, and all set what it gives: for
  /// functions that depend on what only the chief has, such as its monitors.
  bool decided_by_chief = false;
};

/// Sets a hyper-parameter to what a function gives for the number of the epoch that was finished
/// and the old value; with epoch 0 before the first one.
///
///   HyperParamSetterWithFunc("learning_rate", [](int64_t epoch, double old) {
///     return epoch == 0 ? old : old * 0.9;
///   })
///
/// The function may also take the monitors, to decide by what was reported:
///
///   auto next = [best = 1.0](int64_t epoch, double old, const Monitors& monitors) mutable {
///     if (epoch == 0) return old;  // nothing is reported yet
///     const double error = monitors.get_latest("validation_error");
///     const bool is_better = error < best;
///     best = std::min(best, error);
///     return is_better ? old : old * 0.5;
///   };
///   HyperParamSetterWithFunc("learning_rate", next, {.decided_by_chief = true})
///
/// Put it behind what reports the scalar. A training that goes on from a checkpoint goes on with
/// the value it had.
class HyperParamSetterWithFunc final : public HyperParamSetter {
 public:
  using Function = std::function<double(int64_t epoch_num, double old_value)>;
  HyperParamSetterWithFunc(AnyHyperParam param, Function function,
                           HyperParamSetterWithFuncOptions options = {});
  template <typename F>
  requires std::is_invocable_r_v<double, F&, int64_t, double, const Monitors&>
  HyperParamSetterWithFunc(AnyHyperParam param, F function,
                           HyperParamSetterWithFuncOptions options = {})
      : HyperParamSetterWithFunc(std::move(param), options,
                                 FunctionOfMonitors(std::move(function))) {}

  void before_train() override;

 protected:
  std::optional<double> next_value() override;
  bool is_decided_by_chief() const override { return options_.decided_by_chief; }

 private:
  using FunctionOfMonitors = std::function<double(int64_t, double, const Monitors&)>;
  HyperParamSetterWithFunc(AnyHyperParam param, HyperParamSetterWithFuncOptions options,
                           FunctionOfMonitors function);
  static FunctionOfMonitors without_monitors(Function function);

  FunctionOfMonitors function_;
  HyperParamSetterWithFuncOptions options_;
};

}  // namespace tensorpack
