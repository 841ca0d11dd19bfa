// SPDX-License-Identifier: Apache-2.0
// The checkpoint with the best value of a scalar.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/callbacks/detail/awaited_scalar.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

class CheckpointWriter;

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
  std::vector<std::string> may_be_non_finite = {};
};

/// Saves all variables when a scalar is better than ever before: the base of MinSaver and MaxSaver.
///
/// It saves by itself, with or without a ModelSaver, and looks at the scalar when all callbacks of
/// the epoch are done, whatever their order. A value that is not a number is never the best. A file
/// is written in the background, as by ModelSaver; one that cannot be written is an error in the
/// log, and training goes on with the best as it was. A NaN in a variable ends it, as in
/// ModelSaver.
///
/// The best value is in checkpoints, with the name and the step of the file that has it, so that a
/// restart does not forget it. Such a file is on the disk before a checkpoint of a later step is
/// taken. A training that is resumed from the best step itself writes the file again if it is not
/// there; otherwise a value without its file is not believed.
class BestSaver : public Callback {
 public:
  BestSaver(BestSaver&&) noexcept;
  BestSaver& operator=(BestSaver&&) noexcept;
  ~BestSaver() override;

  ReportedScalars reports() const override { return no_scalars(); }
  void setup_graph() override;
  void before_train() override;
  void before_epoch() override;
  void trigger() override { is_due_ = true; }
  void after_triggers() override;
  void after_train() override;
  std::string save_state() const override;
  void load_state(const std::string& state) override;

  /// The best value so far.
  std::optional<double> best() const;

 protected:
  enum class Wanted { kMin, kMax };
  BestSaver(Wanted wanted, std::string stat, BestSaverOptions options);

 private:
  // A value and the file that has, or will have, the variables.
  struct Best {
    double value = 0;
    int64_t step = -1;  // or unknown: in checkpoints of format 2
    int64_t epoch = 0;
    std::string file = {};

    bool operator==(const Best&) const = default;
  };

  std::optional<Best> read_best(const std::string& file) const;
  void find_best_of_earlier_run();
  std::optional<Best> saved_or_same_step() const;
  std::optional<Best> best_of_this_step() const;
  bool is_better(double value, const std::optional<Best>& than) const;
  void save(Best best);
  void write(const Checkpoint& checkpoint) const;
  void forget_unwritten();
  std::string file_for(double value, int64_t step) const;

  Wanted wanted_;
  AwaitedScalar stat_;
  BestSaverOptions options_;
  std::filesystem::path dir_;
  std::optional<Best> best_;
  std::optional<Best> best_before_;  // what is on the disk, while the best is written
  int64_t last_step_ = -1;           // of the newest value that was looked at
  bool is_due_ = false;
  bool is_lost_ = false;    // whether the best, of the step resumed from, is to be written again
  bool has_begun_ = false;  // whether an epoch has
  detail::Pimpl<CheckpointWriter> writer_;
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
