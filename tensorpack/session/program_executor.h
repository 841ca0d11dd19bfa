// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <set>
#include <unordered_map>

#include "tensorpack/graph/detail/saved_state.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/eager_executor.h"
#include "tensorpack/session/executor.h"
#include "tensorpack/session/fake_results.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/session/recording_watch.h"
#include "tensorpack/session/trace_change.h"
#include "tensorpack/session/verify.h"

namespace tensorpack {

/// Records an op when it is first prepared, and for every new combination of input shapes, lowers
/// what was recorded for every set of fetches, verifies and keeps the program. Leaves variables and
/// generators as they were.
class ProgramExecutor final : public Executor {
 public:
  /// After so many recordings an op runs eagerly on inputs of other shapes: recording takes longer
  /// than it saves where shapes rarely come again.
  static constexpr size_t kMostRecordings = 64;
  /// Of one recording the programs of so many lists of fetches are kept, those used last.
  static constexpr size_t kMostFetchLists = 16;

  ProgramExecutor(Graph& graph, ExecutorOptions options,
                  std::unique_ptr<Lowering> lowering = std::make_unique<Lowering>());
  ~ProgramExecutor() override;

  PreparedOp* find(const Op& op, const std::vector<at::Tensor>& inputs,
                   const std::vector<std::string>& fetches) override;
  PreparedOp& prepare(const Op& op, const std::vector<at::Tensor>& inputs,
                      const std::vector<std::string>& fetches) override;

  PreparedOp& call_function(const Op& op, const std::vector<at::Tensor>& inputs,
                            const std::vector<std::string>& fetches) override;

  const Trace* recorded(const Op& op) const override;

  /// How often an op was recorded so far.
  size_t recordings() const { return recordings_; }

 private:
  class Request;
  // What was made of a recording for one set of fetches.
  struct LoweredProgram {
    std::vector<std::string> fetches;
    Trace optimized;
    std::unique_ptr<ProgramRunner> runner;
  };
  // One recording, and a program for every set of fetches that was asked for.
  struct Variant {
    Trace trace;
    SavedState foreign;  // what the function writes though the graph does not own it
    std::unique_ptr<RecordingWatch> watch;
    std::unique_ptr<FakeResults> fake_results;  // once it was compared with the function
    bool needs_results = false;                 // the function looks at them on the host
    std::map<std::vector<std::string>, std::unique_ptr<LoweredProgram>> programs;
    std::list<std::unique_ptr<Request>> requests;  // the last used first
  };
  using Variants = std::list<Variant>;  // the last used first

  Request* find_request(const Op& op, const std::vector<at::Tensor>& inputs,
                        const std::vector<std::string>& fetches);
  bool is_due_to_be_verified(const Variant& variant) const;
  Variant* find_variant(Variants& variants, const std::vector<at::Tensor>& inputs);
  static Request* find_request(Variant& variant, const std::vector<std::string>& fetches);
  static void add_request(Variant& variant, std::unique_ptr<Request> request);
  PreparedOp& prepare_eagerly(const Op& op, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches);
  Request& prepare_anew(const Op& op, const std::vector<at::Tensor>& inputs,
                        const std::vector<std::string>& fetches);
  Variant record_variant(const Op& op, const std::vector<at::Tensor>& inputs, StateGuard& guard);
  LoweredProgram& program_for(const Op& op, Variant& variant, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches, StateGuard& guard);
  /// Runs the action again, with more room, as long as there is some to make.
  template <typename Action>
  auto with_room(const Action& action);
  bool make_room(const Op& op);
  bool give_back_memory();
  bool does_the_same(const Op& op, Variant& variant, const std::vector<at::Tensor>& inputs);
  std::optional<Recording> record_on_fake_results(const Op& op, Variant& variant,
                                                  const std::vector<at::Tensor>& inputs);
  bool does_the_same_computing(const Op& op, Variant& variant,
                               const std::vector<at::Tensor>& inputs, int64_t announced_changes,
                               std::optional<Recording> now);
  static bool is_still_right(const Op& op, const Variant& variant, const TraceChange& change,
                             const Trace& now, const std::vector<at::Tensor>& inputs,
                             StateGuard& guard);
  static std::vector<std::string> fetches_of(const Variant& variant);
  void add_variant(const Op& op, Variants& variants, Variant variant);

  Graph& graph_;
  ExecutorOptions options_;
  std::unique_ptr<Lowering> lowering_;
  std::unordered_map<const Op::State*, Variants> variants_;
  EagerExecutor eager_;
  std::set<const Op::State*> run_eagerly_;  // on new shapes, of which the log was told
  size_t recordings_ = 0;
};

}  // namespace tensorpack
