// SPDX-License-Identifier: Apache-2.0
// The checkpoint with the best value of a scalar.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tensorpack/callbacks/awaited_scalar.h"
#include "tensorpack/callbacks/callback.h"
#include "tensorpack/checkpoint/checkpoint_writer.h"

namespace tensorpack {

struct BestSaverOptions {
  /// Without extension; `min-<stat>` or `max-<stat>` when empty. {value} and {step} stand for the
  /// numbers: then earlier files stay.
  std::string filename = {};
  /// By default the log directory.
  std::filesystem::path checkpoint_dir = {};
  /// As in ModelSaverOptions.
  int64_t retries = 2;
  double seconds_between_retries = 1;
  bool background = true;
};

/// Saves all variables when a scalar is better than ever before: the base of MinSaver and MaxSaver.
///
/// It saves by itself, with or without a ModelSaver, and looks at the scalar when all callbacks of
/// the epoch are done, whatever their order. The best value is in checkpoints, so that a restart
/// does not forget it. A value that is not a number is never the best. A file is written in the
/// background, as by ModelSaver; one that cannot be written is an error in the log, and training
/// goes on with the best as it was.
class BestSaver : public Callback {
 public:
  ReportedScalars reports() const override { return no_scalars(); }
  void setup_graph() override;
  void before_train() override;
  void trigger() override { is_due_ = true; }
  void after_triggers() override;
  void after_train() override;
  std::string save_state() const override;
  void load_state(const std::string& state) override;

  /// The best value so far.
  std::optional<double> best() const { return best_; }

 protected:
  enum class Wanted { kMin, kMax };
  BestSaver(Wanted wanted, std::string stat, BestSaverOptions options);

 private:
  void take_best_of_file();
  bool is_better(double value) const;
  void save(double value);
  void write(const Checkpoint& checkpoint) const;
  void forget_unwritten();
  std::filesystem::path file_for(double value, int64_t step) const;

  Wanted wanted_;
  AwaitedScalar stat_;
  BestSaverOptions options_;
  std::filesystem::path dir_;
  std::optional<double> best_;
  std::optional<double> best_before_;  // what is on the disk, while the best is written
  int64_t last_step_ = -1;             // of the newest value that was looked at
  bool is_due_ = false;
  std::unique_ptr<CheckpointWriter> writer_;
};

/// Keeps the checkpoint with the smallest value: MinSaver("validation_error").
class MinSaver final : public BestSaver {
 public:
  explicit MinSaver(std::string stat, BestSaverOptions options = {})
      : BestSaver(Wanted::kMin, std::move(stat), std::move(options)) {}
};

/// Keeps the checkpoint with the greatest value: MaxSaver("validation_accuracy").
class MaxSaver final : public BestSaver {
 public:
  explicit MaxSaver(std::string stat, BestSaverOptions options = {})
      : BestSaver(Wanted::kMax, std::move(stat), std::move(options)) {}
};

}  // namespace tensorpack
