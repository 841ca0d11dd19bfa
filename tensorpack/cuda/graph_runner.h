// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/cuda/captured_program.h"
#include "tensorpack/graph/decisions.h"
#include "tensorpack/graph/kept_copies.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/session/program_runner.h"

namespace tensorpack::cuda {

/// Runs a program operator by operator the first time, as a warm-up, captures it the second time,
/// and launches the captured work from then on. Every run is a real one. A program that cannot be
/// captured is run operator by operator for good, and the log says why.
///
/// Captured work reads the same memory in every run, so a batch is copied there; a batch that comes
/// in the same memory twice is read where it is, for as long as it stays there.
///
/// A program with exchanges that are not always due is captured once for each case: the host, which
/// knows which are, launches the work that has them. See Note [Deciding on the host].
///
/// Copies of weights that are stale are made in front of the captured work, which has no part in
/// it. See Note [Kept copies].
class GraphRunner final : public ProgramRunner {
 public:
  /// `generator` is what the program's operators draw from.
  GraphRunner(std::string op_name, Trace trace, const std::vector<std::string>& fetches,
              at::Generator generator, std::shared_ptr<const CaptureSpace> space);

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override;
  int runs_until_settled() const override { return may_capture_ ? 2 : 1; }
  bool give_back_memory() override;

 private:
  // What the captured work reads in place of one input.
  struct Input {
    at::Tensor tensor = {};  // or, before the capture, what the warm-up read
    std::vector<int64_t> sizes = {};
    std::vector<int64_t> strides = {};
    at::TensorOptions options = {};
    bool is_written = false;  // by the program
    bool is_callers = false;  // the memory is not ours
  };

  // The work for one case of what is due.
  struct Variant {
    bool is_warm = false;
    std::optional<CapturedProgram> capture = {};
    std::vector<at::Tensor> outputs = {};  // where the captured work leaves the fetched values
  };

  Variant& decide();
  std::vector<at::Tensor> with_decided(std::vector<at::Tensor> inputs) const;
  std::vector<at::Tensor> warm_up(Variant& variant, const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> run_and_remember(const std::vector<at::Tensor>& inputs);
  void place_inputs(const std::vector<at::Tensor>& inputs);
  void forget_captures();
  void capture(Variant& variant);
  bool have_moved(const std::vector<at::Tensor>& inputs) const;
  std::vector<at::Tensor> launch(Variant& variant, const std::vector<at::Tensor>& inputs);
  void give_up(const std::string& reason);

  std::string op_name_;
  at::Generator generator_;
  std::shared_ptr<const CaptureSpace> space_;
  KeptCopies copies_;
  Decisions decisions_;
  Program program_;  // all but what makes copies and what decides
  std::vector<Input> inputs_;
  std::vector<at::Tensor> decided_;  // inputs of the program: what was decided for the run
  std::map<std::vector<bool>, Variant> variants_;
  KnownAverages averages_;   // of exchanges through the host
  bool are_placed_ = false;  // the inputs, for captured work
  bool may_capture_ = true;
};

}  // namespace tensorpack::cuda
