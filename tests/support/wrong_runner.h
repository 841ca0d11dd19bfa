// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "tensorpack/session/program_runner.h"

namespace tensorpack {

/// Runs as it should until it is settled and is off from then on, like work that was captured
/// badly.
class WrongOnceSettled final : public ProgramRunner {
 public:
  explicit WrongOnceSettled(std::unique_ptr<ProgramRunner> runner) : runner_(std::move(runner)) {}

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    std::vector<at::Tensor> values = runner_->run(inputs);
    if (++runs_ > 1) {
      for (at::Tensor& value : values) value = value + 1;
    }
    return values;
  }
  int runs_until_settled() const override { return 2; }

 private:
  std::unique_ptr<ProgramRunner> runner_;
  int runs_ = 0;
};

}  // namespace tensorpack
