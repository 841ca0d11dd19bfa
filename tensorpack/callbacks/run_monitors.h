// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

/// Tells the trainer's monitors what happens. The last callback of every trainer, so that monitors
/// see all that others reported.
class RunMonitors final : public Callback {
 public:
  RunMonitors() { set_chief_only(false); }

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  void trigger_step() override;
  void trigger_epoch() override { tell(&MonitorBase::trigger_epoch); }
  void after_train() override { tell(&MonitorBase::after_train); }

 private:
  void put_hyper_params() const;
  void put_graph() const;
  void put_setup() const;
  void tell(void (MonitorBase::*event)(const LoopState&)) const {
    for (MonitorBase& monitor : trainer().monitors().all()) (monitor.*event)(trainer().loop());
  }

  bool wants_graph_ = false;
};

}  // namespace tensorpack
