// SPDX-License-Identifier: Apache-2.0
// Evaluates ops of a graph.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/detail/pass_switches.h"
#include "tensorpack/session/executor.h"
#include "tensorpack/session/fetched_values.h"
#include "tensorpack/session/fusion.h"
#include "tensorpack/tower/precision.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Tensors by input name, in place of what the op's own source would give.
using Feeds = std::map<std::string, at::Tensor>;
using Fetches = std::vector<std::string>;

struct SessionOptions {
  ExecutorKind executor = ExecutorKind::kDefault;
  /// Ops that run by another executor, by name: of a training whose validation depends on data,
  /// {{"InferenceTower", ExecutorKind::kEager}} runs that op eagerly and no other. An op on several
  /// towers is one name: "train_op" is "train_op/tower0" and the others, too. The ops must be
  /// defined before the session is made.
  std::map<std::string, ExecutorKind> executor_of = {};
  /// What tower functions compute in. On CUDA this sets libtorch's switches for tf32.
  Precision precision = Precision::kFloat32;
  /// On CUDA: kernels that give the same bits in every run, at some cost. Otherwise kernels are
  /// chosen by speed. Switches of the process, like those for tf32: sessions that live at the same
  /// time must agree, and what was set before comes back.
  bool deterministic = false;
  /// On CUDA: how many of the kernels that cuDNN offers for a convolution are timed to take the
  /// fastest, 0 for all. The choice is kept on disk, so that this is done once on a machine. With
  /// 1, cuDNN's first choice is taken untimed. A switch of the process, too.
  int cudnn_candidates = 10;
  /// Compare every new program with an eager run before it is used (see Note [Verification]).
  bool verify = true;
  /// Record every op again before its first 64 runs, then before runs 89, 144 and so on, and
  /// compare: what one batch did not show, a later one may, and what a function reads on the host
  /// may change. Nothing is computed for it (see Note [Fake results]). Counts if `verify` is on.
  bool verify_again = true;
  Fusion fusion = Fusion::kDefault;
  Recompute recompute = Recompute::kSome;
  /// On CUDA: updates write the copies of weights in 16 bits, too, with which the next step begins.
  /// Variables may then be written by ops, assign() and operators of libtorch, also in place and
  /// through views or detach(), but not through data() or a pointer: such a write is not noticed,
  /// and steps would go on with the old weights. Each program holds copies of its own.
  bool keep_weight_copies = false;
  /// For debugging, not stable: changes which passes run, after all of the above.
  std::function<void(PassSwitches&)> debug_passes = {};
  /// Whether a run waits for those of other sessions on the graph, and for who holds
  /// Graph::lock_variables(). Off for predictions that run at the same time, each in a session of
  /// its own, while nobody writes variables.
  bool exclusive = true;
};

/// What runs `op` by these options.
ExecutorKind executor_of(const SessionOptions& options, const Op& op);

/// The passes over programs for ops on `device` by these options.
PassSwitches pass_switches(const SessionOptions& options, c10::DeviceType device);

/// Runs ops. Evaluates only what is asked; does not count steps and calls no hooks.
///
/// Several threads may call it: their runs happen one after the other, under
/// Graph::lock_variables(). Nothing is locked while a run waits for its batches or calls a host
/// function: a dataflow may ask a predictor of the very training that waits for its data.
class Session {
 public:
  explicit Session(Graph& graph, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Graph& graph() { return graph_; }
  const SessionOptions& options() const { return options_; }

  /// Runs `op` once and returns the values of that very run, in the order of `fetches`: tensors the
  /// op named, its inputs, or variables (as they are after the run). Inputs that are not fed come
  /// from the op's source; throws EndOfData when that has ended. The batches of all members of a
  /// group are taken first. Where one of them does not come, those that did go back to their
  /// source.
  FetchedValues run(const Op& op, const Fetches& fetches = {}, const Feeds& feeds = {});

  /// The value of one tensor of a tower.
  at::Tensor run(const TensorRef& tensor, const Feeds& feeds = {});

  /// The operators that a run of a program op executes, before they are rewritten: of the last run,
  /// or, where there was none, recorded on zeros of the trial shapes. See graph/dump.h for ways to
  /// look at them. Changes nothing.
  Trace trace(const Op& op);

  /// How many runs of ops that have a source were begun: their batches were taken, and variables
  /// may have changed, even if the run failed.
  int64_t runs_with_source() const { return runs_with_source_; }

  /// Throws an Error with the nearest names, said to come from `where`, unless `op` can give
  /// `fetch`.
  void check_fetch(const Op& op, const std::string& fetch, const std::string& where) const;

 private:
  struct Part;
  struct Run;
  void check_feeds(const Op& op, const Feeds& feeds) const;
  static void add_parts(const Op& op, std::vector<Part>& parts);
  void take_batches(Run& run);
  static void take_batch(Part& part, const Feeds& feeds);
  static void bind_inputs(Part& part, Run& run);
  void run_member(const Op& op, Run& run);
  void run_program(const Op& op, Run& run);
  void run_parallel(const Op& op, Run& run);
  void make_ready(std::span<Part> parts, Run& run);
  bool is_ready(Part& part);
  static std::unique_lock<std::recursive_mutex> wait_to_prepare(std::span<const Part> parts);
  void prepare(Part& part);
  void execute(Part& part, ExchangeGroup* group, size_t index);
  Executor& executor_for(const Op& op);
  class WorkerTeam& team_of(const Op& op);
  std::unique_lock<std::recursive_mutex> lock();

  Graph& graph_;
  SessionOptions options_;
  struct Internals;
  detail::Pimpl<Internals> internals_;
  std::atomic<int64_t> runs_with_source_ = 0;
  std::recursive_mutex own_mutex_;  // for a session that is not exclusive
};

}  // namespace tensorpack
