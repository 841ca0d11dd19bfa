// SPDX-License-Identifier: Apache-2.0
// Copies of variables that a program keeps from one run to the next.
//
// Note [Kept copies]
// In mixed precision a step begins with casts of its weights and ends with an update, which has the
// new weights at hand and can write the casts that the next step begins with. They lie in constants
// of the trace, then, and the operator that makes them of the variables, make_copies_, is needed in
// the first run alone. And whenever somebody else wrote a variable since: a checkpoint, a callback,
// another program. libtorch counts the writes to a tensor, also those through views and detach().
// Programs run below what counts, and captured work is out of its sight, so who runs a program
// counts for it: once for each variable that it writes. Copies of variables with another count than
// the program left are stale.
//
// What is written through data() or a pointer is counted by nobody.
//
// Verification puts variables back before each run, so it never sees copies that an update wrote.
// The first ones are compared with the variables before they are used; if they are not right, as
// where several threads write the variables at once, the program makes them before every run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tensorpack/graph/program.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// make_copies_(Tensor(a!)[] copies, Tensor[] variables): copies each variable, in the type of its
/// copy. Those variables are written after it, and by an update that writes the copies, too.
c10::OperatorHandle make_copies_operator();

/// The copies that a program keeps, and what it writes. A program without copies has its writes
/// counted all the same.
class KeptCopies {
 public:
  /// Takes the operators that make copies out of `trace`: the rest is what runs.
  explicit KeptCopies(Trace& trace);

  /// Stands around every run of the rest, however that is done. Makes the copies first, if they are
  /// stale, and counts the writes in the end. After a run that throws they are stale.
  class [[nodiscard]] Run {
   public:
    explicit Run(KeptCopies& copies);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    KeptCopies& copies_;
    std::vector<int64_t> versions_;  // of the variables, after the run
    int exceptions_;                 // that were on their way before it
  };

 private:
  struct Copy {
    at::Tensor tensor;
    at::Tensor variable;
  };
  std::vector<int64_t> versions() const;
  bool are_stale(const std::vector<int64_t>& versions);
  bool are_right() const;

  std::vector<at::Tensor> written_;  // variables
  std::vector<Copy> copies_;
  std::vector<int64_t> versions_;    // of variables with copies, as these are; empty if stale
  std::unique_ptr<Program> making_;  // of the copies
  // Those that the program leaves, when they were looked at.
  std::optional<bool> are_left_right_;
};

}  // namespace tensorpack
