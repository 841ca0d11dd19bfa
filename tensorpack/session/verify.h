// SPDX-License-Identifier: Apache-2.0
// The check that a program means the same as the function it was recorded from.
//
// Note [Verification]
// A recorded program repeats what the function did on one batch. Whatever the function decided on
// the host - a value read through a pointer, a counter in a member variable, a kernel that the
// dispatcher never saw - is frozen into it without a sign. So after recording, the function and the
// program run once more from the same state on another batch; what they wrote and gave must agree.
// What one batch does not show another may: see Note [Verifying again]. The program is the one that
// will run: lowered for the same fetches, by the same lowering, and run until it is settled,
// captured if it will be captured (see Note [One lowering]). Kernels of ours may round differently:
// see Note [Side by side]. Exchanges with other towers are not bound meanwhile: a tower is verified
// alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/lowering.h"

namespace tensorpack {

/// A program as it will run.
struct LoweredOp {
  const Op& op;
  const Trace& recorded;
  const Trace& optimized;
  const std::vector<std::string>& fetches;
  const Lowering& lowering;
  /// Whether to compare what is not fetched too, operator by operator: once for each recording.
  bool compares_all_outputs = false;
};

/// Another batch with valid contents, where the given one is: the rows in another order, numbers a
/// little smaller.
std::vector<at::Tensor> another_batch(const std::vector<at::Tensor>& inputs);

/// Makes the same batch each time, on the op's device, in memory that may be written to. It is made
/// again for every run: kept beside the caller's, it would take memory of the device, and on the
/// host time.
using MakeBatch = std::function<std::vector<at::Tensor>()>;

/// Compares function and program on a batch. Throws an Error that names the first node that
/// differs. Runs from the state `guard` restores.
void verify(Graph& graph, const LoweredOp& program, const MakeBatch& make_batch, StateGuard& guard);

/// Whether two recordings of an op give the same outputs under these names and leave the same
/// variables: the same bits on the CPU, where kernels repeat themselves. Runs from the state
/// `guard` restores.
bool compute_the_same(const Op& op, const Trace& a, const Trace& b,
                      const std::vector<std::string>& outputs, const MakeBatch& make_batch,
                      StateGuard& guard);

}  // namespace tensorpack
