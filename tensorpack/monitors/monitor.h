// SPDX-License-Identifier: Apache-2.0
// Where the numbers of a training go.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/monitors/histogram.h"
#include "tensorpack/monitors/image.h"
#include "tensorpack/utils/hyper_params.h"
#include "tensorpack/utils/loop_state.h"

namespace tensorpack {

struct LayerTime;
struct RunSetup;
struct StageReport;
struct Trace;

/// Receives what callbacks report. Override what you need; a trainer calls the methods on the
/// training thread, in the order of its callback list, where monitors come last.
///
///   class Beep final : public MonitorBase {
///    public:
///     void process_scalar(const std::string& name, double value, const LoopState&) override {
///       if (name == "cost" && value < 0.1) std::cout << '\a';
///     }
///   };
///
/// Values may come before before_train(), from other callbacks' before_train().
class MonitorBase {
 public:
  virtual ~MonitorBase() = default;

  virtual void process_scalar(const std::string& /*name*/, double /*value*/, const LoopState&) {}
  virtual void process_image(const std::string& /*name*/, const Image&, const LoopState&) {}
  virtual void process_histogram(const std::string& /*name*/, const Histogram&, const LoopState&) {}
  virtual void process_text(const std::string& /*name*/, const std::string& /*text*/,
                            const LoopState&) {}
  /// All that are known. Comes before before_train(), and again when more are reported.
  virtual void process_hyper_params(const HyperParams&, const LoopState&) {}

  /// Whether process_graph() is to be called.
  virtual bool wants_graph() const { return false; }
  /// What a step does, once, after the first; see graph/dump.h for ways to look at it.
  virtual void process_graph(const Trace&, const LoopState&) {}
  /// What is trained, once, after before_train().
  virtual void process_setup(const RunSetup&, const LoopState&) {}
  /// Where the time of a step goes, when somebody has measured it.
  virtual void process_profile(const std::vector<LayerTime>&, const LoopState&) {}
  /// Where the time of the data went so far, from its source to its end, at the end of an epoch.
  virtual void process_stages(const std::vector<StageReport>&, const LoopState&) {}

  virtual void before_train(const LoopState&) {}
  virtual void trigger_step(const LoopState&) {}
  /// After every other callback of that epoch: what was reported for it is complete.
  virtual void trigger_epoch(const LoopState&) {}
  /// Called before a checkpoint is saved, which must not outlive the numbers it goes with: have on
  /// the disk what was written so far.
  virtual void flush() {}
  virtual void after_train(const LoopState&) {}
};

}  // namespace tensorpack
