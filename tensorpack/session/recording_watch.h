// SPDX-License-Identifier: Apache-2.0
// When a recording is to be compared with its function again.
//
// Note [Verifying again]
// A program repeats what its function did when it was recorded. What the function reads on the
// host may change later: a number it captured, a member, a branch on a batch. So it is recorded
// again, on the batch of a run, and the two recordings are compared: operators, their numbers, what
// tensors that the function fills on the host hold (see session/trace_change.h). As long as it
// calls the same operators, none of them computes anything (Note [Fake results]). Contents alone
// may mean nothing, as of memory that was never written: then both recordings run, and what they
// compute is compared.
//
// It is due before each of the first runs, as many as cost little (kEveryRun, kEveryOperator), so
// that what counts the calls of the function is found when it would take effect, and then before
// Fibonacci's numbers, 89, 144, 233: a change that stays is found before as many wrong steps were
// made as right ones. Among these numbers are multiples of 3, 5 and 7, which powers of two never
// are, so that a value that comes and goes with the step has a chance to be seen. A function that
// has to compute is compared before Fibonacci's numbers alone, 2, 3, 5, 8 and so on. Runs are
// counted, never timed, so that all ranks do it at once. It is due at once where a change costs
// nothing to see: a captured tensor was replaced, a variable requires gradients no longer. A
// variable that was given other memory, as by torch::load(), is no change of the function: the op
// is prepared again on that memory. And it is due after Graph::announce_change(), which says that
// something was changed on purpose: then the op is prepared again if it does something else.
// Otherwise a change is an error, unless it computes the same numbers, as where a function begins
// to use a table that it filled in an earlier call. Then other operators are a warning: on another
// batch they may compute something else.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/recorder.h"

namespace tensorpack {

class RecordingWatch {
 public:
  /// So many of the first runs are compared each ...
  static constexpr int64_t kEveryRun = 64;
  /// ... if no more operators than these are called for it, which takes some 30 ms.
  static constexpr int64_t kEveryOperator = 4096;

  /// `announced_changes` are those of the graph from before it was recorded.
  RecordingWatch(Graph& graph, int64_t announced_changes, const Recording& recording);

  void count_run() { ++runs_; }
  /// The number of the next one, counted from 1.
  int64_t next_run() const { return runs_ + 1; }

  bool is_change_announced() const { return graph_.announced_changes() != announced_changes_; }
  bool is_due_by_count() const {
    return was_wrong_ || (next_run() > compared_before_ &&
                          (next_run() <= every_run_until_ || next_run() >= due_));
  }
  bool sees_change() const;
  /// Whether a variable that it uses lies in other memory, or is laid out otherwise.
  bool sees_moved_variable() const;

  /// After the last call of the function: captured tensors that it gives up in every call are no
  /// reason to record it.
  void settle();
  /// It was recorded again, and does the same.
  void renew(int64_t announced_changes, const Recording& recording);
  /// It was recorded again, or could not be: not before the next of the due numbers, unless there
  /// is a reason.
  void postpone();
  /// It does something else, or throws: that is an error before the next run, too, if somebody has
  /// caught this one, until the function does the same again.
  void insist() { was_wrong_ = true; }
  /// Comparing takes the time of steps: no longer before every run.
  void compare_rarely() { every_run_until_ = 0; }
  /// Counts on from the recording whose place it takes.
  void count_on_from(const RecordingWatch& other);

 private:
  void look_at(const Recording& recording);

  struct UsedVariable {
    at::Tensor tensor;
    at::Tensor recorded;  // its memory as it was, in a tensor of the trace
    bool requires_grad;
  };

  Graph& graph_;
  int64_t announced_changes_;
  int64_t runs_ = 0;
  int64_t compared_before_ = 1;  // the run that came next when it was compared last
  int64_t every_run_until_;
  int64_t due_ = 2;
  int64_t due_after_ = 3;
  bool was_wrong_ = false;
  std::vector<CapturedTensor> captured_;
  std::vector<UsedVariable> variables_;
};

}  // namespace tensorpack
