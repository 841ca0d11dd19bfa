// SPDX-License-Identifier: Apache-2.0
// What a program decides on the host, taken out of it.
//
// Note [Deciding on the host]
// Work that was captured for a device does the same in every run: it cannot leave an exchange out.
// So who launches it has to know before which exchanges are due. What they depend on, a counter of
// steps, is kept in the memory of the host. The operators that make a yes or a no of it are taken
// out of the trace and run first, and their answers become inputs of the rest. An answer that the
// rest wants on the device, to keep an update or not, is an input there.
#pragma once

#include <memory>
#include <vector>

#include "tensorpack/graph/program.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// What an exchange asks whether it is due; kNoValue if it always is, and for other operators.
ValueId condition_of(const Node& node);

/// The operators of a program that decide.
class Decisions {
 public:
  /// None.
  Decisions() = default;
  /// Takes them out of `trace`, and adds an input to it for every answer. Leaves it as it is, and
  /// decides nothing, where that cannot be done: where they depend on an input or a device, or
  /// would come too early for somebody who reads what they write.
  explicit Decisions(Trace& trace);

  /// The answers for one run, in the order of the added inputs. Variables that the decisions write,
  /// like counters, change.
  std::vector<bool> make();

  size_t size() const { return size_; }

 private:
  std::unique_ptr<Program> program_;
  size_t size_ = 0;
};

}  // namespace tensorpack
