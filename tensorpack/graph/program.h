// SPDX-License-Identifier: Apache-2.0
// A trace made ready to run thousands of times.
//
// Note [Running a program]
// Operators are called boxed, below autograd, on the dispatch keys they were recorded with. Every
// value has a slot; a value is moved out of its slot at its last use, so that memory is released as
// early as in a normal run. Results of up to a few KB are written into buffers that are kept, by
// the out= form of the operator: allocating costs more than computing there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensorpack/graph/trace.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct ProgramOptions {
  /// Results up to this size are written into buffers that are kept between runs; 0 for none.
  int64_t largest_kept_buffer = 1 << 16;
  /// All kept buffers together take no more than this.
  int64_t kept_buffers_budget = 16 << 20;
};

/// Not for use by two threads at a time.
class Program {
 public:
  /// `fetches` must be outputs of the trace, which should have been optimized for them.
  Program(const Trace& trace, const std::vector<std::string>& fetches, ProgramOptions options = {});

  /// Binds the inputs, in the order of the trace, runs, and returns the fetched values. They may
  /// share memory with the program: copy them before the next run.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs);

  size_t size() const { return steps_.size(); }
  /// The operator that is being run, or that threw.
  std::string current_op() const;

 private:
  struct Push {
    Argument::Kind kind;
    bool move;      // the last use of this value
    int32_t index;  // a slot, a literal or a list
  };
  struct Pop {
    enum class Kind : uint8_t { kIgnore, kTensor, kList } kind;
    int32_t index;
  };
  struct Step {
    c10::OperatorHandle op;
    c10::DispatchKeySet keys;
    uint32_t push_begin, push_end;
    uint32_t pop_begin, pop_end;
    uint32_t release_begin, release_end;  // list results nobody uses
    bool changes_metadata;
    bool grad_mode;
    int32_t generator;  // whose state the default one is lent, or -1
  };
  struct List {
    std::vector<ValueId> ids;
    std::vector<char> move;
  };

  void add_step(const Trace& trace, const Node& node, int32_t index);
  bool add_step_into_kept_buffers(const Trace& trace, const Node& node, int32_t index,
                                  const ProgramOptions& options);
  void find_last_uses(const Trace& trace);
  void push_argument(const Push& push);
  void execute(const Step& step);
  void call(const Step& step);
  at::Tensor take(ValueId id, bool move);

  std::vector<c10::IValue> slots_;
  std::vector<char> kept_;  // slots that hold the same tensor in every run
  std::vector<char> fetched_;
  std::vector<Step> steps_;
  std::vector<std::string> scopes_;  // of each step, for messages
  std::vector<Push> pushes_;
  std::vector<Pop> pops_;
  std::vector<ValueId> releases_;
  std::vector<c10::IValue> literals_;
  std::vector<List> lists_;
  std::vector<at::Generator> generators_;
  struct Input {
    ValueId id;
    std::vector<int64_t> sizes, strides;  // as recorded
    at::TensorOptions options;
  };
  std::vector<Input> inputs_;
  std::vector<ValueId> fetch_ids_;
  torch::jit::Stack stack_;
  int64_t kept_bytes_ = 0;
  size_t position_ = 0;  // of the step that is being run
};

}  // namespace tensorpack
