// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

/// Says so in the log when a step takes longer than it should, and what it waits for: its data, the
/// preparation of a program, or an op. It is said again each time that twice as long has passed.
/// The step itself is left alone: what hangs inside a library cannot be ended from outside.
///
///   SessionRunTimeout(std::chrono::seconds(30))
class SessionRunTimeout final : public Callback {
 public:
  /// Any duration; a bare number would not say its unit.
  explicit SessionRunTimeout(std::chrono::duration<double> timeout);
  ReportedScalars reports() const override { return no_scalars(); }
  ~SessionRunTimeout() override;
  SessionRunTimeout(SessionRunTimeout&&) noexcept;
  SessionRunTimeout& operator=(SessionRunTimeout&&) noexcept;

  void before_train() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void after_train() override;

 private:
  class Watchdog;
  std::chrono::duration<double> timeout_;
  detail::Pimpl<Watchdog> watchdog_;  // while training
};

}  // namespace tensorpack
