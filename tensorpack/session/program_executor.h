// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <list>
#include <map>
#include <unordered_map>

#include "tensorpack/graph/saved_state.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/executor.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/session/verify.h"

namespace tensorpack {

/// Records an op when it is first prepared, and for every new combination of input shapes, lowers
/// what was recorded for every set of fetches, verifies and keeps the program. Leaves variables and
/// generators as they were. Of very many shapes, those used least recently are forgotten.
class ProgramExecutor final : public Executor {
 public:
  ProgramExecutor(Graph& graph, ExecutorOptions options,
                  std::unique_ptr<Lowering> lowering = std::make_unique<Lowering>());
  ~ProgramExecutor() override;

  PreparedOp& prepare(const Op& op, const std::vector<at::Tensor>& inputs,
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
    int64_t runs;  // that were prepared
  };
  // One recording, and a program for every set of fetches that was asked for.
  struct Variant {
    Trace trace;
    SavedState foreign;  // what the function writes though the graph does not own it
    std::map<std::vector<std::string>, std::unique_ptr<LoweredProgram>> programs;
    std::deque<std::unique_ptr<Request>> requests;
  };
  using Variants = std::list<Variant>;  // the last used first

  Variant* find_variant(Variants& variants, const std::vector<at::Tensor>& inputs);
  Request& prepare_anew(const Op& op, const std::vector<at::Tensor>& inputs,
                        const std::vector<std::string>& fetches);
  Variant record_variant(const Op& op, const std::vector<at::Tensor>& inputs, StateGuard& guard);
  LoweredProgram& program_for(const Op& op, Variant& variant, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches, StateGuard& guard);
  void verify_with_room(const LoweredOp& program, const MakeBatch& make_batch, StateGuard& guard);
  bool make_room(const Op& op);
  bool give_back_memory();
  void verify_again_if_due(const Op& op, Variant& variant, LoweredProgram& program,
                           const std::vector<at::Tensor>& inputs);
  void add_variant(const Op& op, Variants& variants, Variant variant);

  Graph& graph_;
  ExecutorOptions options_;
  std::unique_ptr<Lowering> lowering_;
  std::unordered_map<const Op::State*, Variants> variants_;
  size_t recordings_ = 0;
};

}  // namespace tensorpack
