// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "tensorpack/input_source/input_source.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

struct StagingInputOptions {
  /// Where the batches are wanted. Several devices, for towers that take them in turn, get one
  /// each: batch number n goes to the device at place n modulo their number.
  std::vector<c10::Device> devices = {c10::kCPU};
  /// How many batches are brought there ahead, for each device.
  int64_t ahead = 1;
  /// How many steps the loop may issue before the device has done the first of them.
  int64_t steps_in_flight = 4;
};

/// Copies the batches of another source to a device ahead of their use: through pinned memory, on a
/// thread and a stream of its own, beside the step that is running.
///
///   StagingInput(QueueInput(FashionMnist("train") | batch(128)), {.devices = {torch::kCUDA}})
///
/// TowerTrainer, the base of all trainers with a model, and InferenceRunner wrap data for CUDA in
/// one. On the CPU there is nothing to copy, and the thread merely works ahead.
class StagingInput final : public InputSource {
 public:
  explicit StagingInput(Owned<InputSource> source, StagingInputOptions options = {});
  StagingInput(StagingInput&&) noexcept;
  StagingInput& operator=(StagingInput&&) noexcept;
  ~StagingInput() override;

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override;
  std::optional<int64_t> size() const override;
  bool end_with_pass() override;
  bool is_endless() const override;

  std::shared_ptr<const StageStats> stats() const override;

  const InputSource& origin() const override;
  std::string name() const override { return origin().name(); }

  /// Waits for the source to finish the batch it is making, and ends the thread and the source.
  void stop() override;

 private:
  class Impl;
  detail::Pimpl<Impl> impl_;
};

/// Whether batches of `source` are to be copied ahead for towers on `devices`: one of them is a
/// GPU, and the source does not do that itself.
bool wants_staging(const InputSource& source, const std::vector<c10::Device>& devices);

/// The same data, copied ahead for towers that take batches in turn, where wants_staging() says so.
Owned<InputSource> staged(Owned<InputSource> source, std::vector<c10::Device> devices);

}  // namespace tensorpack
