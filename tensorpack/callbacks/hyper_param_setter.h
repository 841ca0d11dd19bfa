// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
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
  AnyHyperParam param_;
  std::optional<double> last_set_;
  int64_t last_told_ = -1;  // the epoch
};

/// Sets a hyper-parameter to what a function gives for the number of the epoch that was finished
/// and the old value; with epoch 0 before the first one.
///
///   HyperParamSetterWithFunc("learning_rate",
///                            [](int64_t epoch, double old) { return epoch == 0 ? old : old * 0.9;
///                            })
///
/// A training that goes on from a checkpoint goes on with the value it had.
class HyperParamSetterWithFunc final : public HyperParamSetter {
 public:
  using Function = std::function<double(int64_t epoch_num, double old_value)>;
  HyperParamSetterWithFunc(AnyHyperParam param, Function function);

  void before_train() override;

 protected:
  std::optional<double> next_value() override;

 private:
  Function function_;
};

}  // namespace tensorpack
