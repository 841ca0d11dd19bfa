// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

class ProgressMeter;

/// Shows how far an epoch is, and some scalars of its steps.
///
///    42%|########            | 42/100 [00:10<00:13, 4.20it/s, cost=0.3]
///
/// `names` are tensors, inputs or variables of the train op, shown without their scopes; the
/// costs, if the op has them, when there are none. They come from the first hooked run of the train
/// op in a step (of the first op that has a cost, if the trainer has no train op), and only from
/// steps that are drawn.
/// Throws Error before training when one is unknown or not a scalar.
class ProgressBar final : public Callback {
 public:
  explicit ProgressBar(std::vector<std::string> names = {});
  ProgressBar(ProgressBar&&) noexcept;
  ProgressBar& operator=(ProgressBar&&) noexcept;
  ~ProgressBar() override;

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  void before_epoch() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void trigger_step() override;
  void after_epoch() override;
  void after_train() override;

 private:
  std::vector<std::string> names_;
  std::vector<std::string> shown_;
  detail::Pimpl<ProgressMeter> meter_;  // during an epoch
  bool is_first_run_ = true;            // of this step
};

}  // namespace tensorpack
