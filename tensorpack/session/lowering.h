// SPDX-License-Identifier: Apache-2.0
// From a recorded trace to what runs.
//
// Note [One lowering]
// What is verified is what runs. Rewriting a trace and choosing what runs it are one thing, made in
// one place for each kind of device, and verification goes through it like training does: a pass, a
// fused kernel or a captured graph that is wrong is found before the first step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/op.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/results_on_host.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/detail/pass_switches.h"
#include "tensorpack/session/program_runner.h"

namespace tensorpack {

/// How the programs of a session are made. This one runs them operator by operator, on any device;
/// on the CPU with kernels of ours as `switches` say.
class Lowering {
 public:
  explicit Lowering(PassSwitches switches = {}) : switches_(switches) {}
  virtual ~Lowering() = default;

  /// Rewrites what was recorded of `op` for the outputs that are fetched, keeping its meaning.
  virtual void optimize(const Op& op, Trace& trace, const std::vector<std::string>& fetches) const;

  /// What runs an optimized trace.
  virtual std::unique_ptr<ProgramRunner> make_runner(const Op& op, const Trace& trace,
                                                     const std::vector<std::string>& fetches) const;

  /// What sees the operators of the function of `op` while it is recorded or verified; nothing if
  /// nobody need.
  virtual std::shared_ptr<OperatorWatch> watch_over_function(const Op&) const { return nullptr; }

  /// Results of a function of `op` that take less than this are kept as they are: for its device
  /// that is little.
  virtual int64_t much_memory(const Op&) const { return kMuchMemory; }

  /// Where results of the function of `op` are while it is recorded or verified: it must do with as
  /// little memory as its programs. Nothing if all of them are on the device.
  std::optional<ResultsOnHostOptions> results_on_host(const Op& op) const;

  /// Whether programs of `op` are made to hold as little memory as they can.
  bool saves_memory(const Op& op) const {
    return is_for(op) && switches_.recompute == Recompute::kAlways;
  }
  /// Whether they would hold less after save_memory().
  bool can_save_memory(const Op& op) const {
    return is_for(op) &&
           (switches_.recompute == Recompute::kIfNeeded || switches_.recompute == Recompute::kSome);
  }
  /// For all that is lowered from now on.
  void save_memory() { switches_.recompute = Recompute::kAlways; }

 protected:
  const PassSwitches& switches() const { return switches_; }

 private:
  bool is_for(const Op& op) const { return op.device().type() == switches_.device; }

  PassSwitches switches_;
};

/// Defined in cuda/ when the library is built with CUDA; throws an Error otherwise. Ops on CUDA are
/// captured as CUDA graphs, with fused kernels as `switches` say.
std::unique_ptr<Lowering> make_cuda_lowering(PassSwitches switches = {});

}  // namespace tensorpack
