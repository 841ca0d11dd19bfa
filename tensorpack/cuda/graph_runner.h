// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/cuda/capture.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/session/program_runner.h"

namespace tensorpack::cuda {

/// Why a program cannot be captured, as far as its operators tell: what is computed on the host
/// would be frozen.
std::optional<std::string> obstacle_to_capture(const Trace& trace);

/// Runs a program operator by operator the first time, as a warm-up, captures it the second time,
/// and launches the captured work from then on. Every run is a real one. A program that cannot be
/// captured is run operator by operator for good, and the log says why.
class GraphRunner final : public ProgramRunner {
 public:
  GraphRunner(std::string op_name, const Trace& trace, const std::vector<std::string>& fetches,
              std::shared_ptr<const CaptureSpace> space);

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override;

 private:
  std::vector<at::Tensor> warm_up(const std::vector<at::Tensor>& inputs);
  void capture();
  std::vector<at::Tensor> launch(const std::vector<at::Tensor>& inputs);
  void give_up(const std::string& reason);

  std::string op_name_;
  std::shared_ptr<const CaptureSpace> space_;
  Program program_;
  std::vector<at::Tensor> inputs_;   // what the captured work reads
  std::vector<at::Tensor> outputs_;  // and where it leaves the fetched values
  std::optional<Capture> capture_;
  bool is_warm_ = false;
  bool may_capture_ = true;
};

}  // namespace tensorpack::cuda
