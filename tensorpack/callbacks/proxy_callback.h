// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// Hands every call on to another callback; the base of those that change when it is called.
class ProxyCallback : public Callback {
 public:
  explicit ProxyCallback(Owned<Callback> callback);

  ReportedScalars reports() const override { return callback_->reports(); }
  void setup_graph() override;
  void before_train() override { callback_->before_train(); }
  void before_epoch() override { callback_->before_epoch(); }
  RunArgs before_run(RunContext& context) override { return callback_->before_run(context); }
  void after_run(RunContext& context, const FetchedValues& values) override {
    callback_->after_run(context, values);
  }
  void trigger_step() override { callback_->trigger_step(); }
  void after_epoch() override { callback_->after_epoch(); }
  void trigger_epoch() override { callback_->trigger_epoch(); }
  void trigger() override { callback_->trigger(); }
  void after_triggers() override { callback_->after_triggers(); }
  void after_train() override { callback_->after_train(); }
  void on_terminate() override { callback_->on_terminate(); }
  bool on_request_to_save() override { return callback_->on_request_to_save(); }
  std::vector<std::string> fingerprint() const override { return callback_->fingerprint(); }
  std::string save_state() const override { return callback_->save_state(); }
  void load_state(const std::string& state) override { callback_->load_state(state); }

  /// "PeriodicTrigger(ModelSaver)".
  std::string name() const override;

 private:
  Owned<Callback> callback_;
};

}  // namespace tensorpack
