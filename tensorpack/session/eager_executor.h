// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/session/executor.h"

namespace tensorpack {

/// Calls the op's function at every run.
class EagerExecutor final : public Executor {
 public:
  std::vector<at::Tensor> run(const Op& op, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches) override;
};

}  // namespace tensorpack
