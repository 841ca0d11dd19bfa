// SPDX-License-Identifier: Apache-2.0
// The one seed that everything random in a process follows from.
//
// Note [When seeds are settled]
// Dataflows are made before ranks meet and before a checkpoint is read, and both decide which seed
// the data follows from. A stage therefore keeps only its number (StageSeed), and derives its seed
// when it draws. A training settles the seed once it has restored (TrainingSeed): the checkpoint's,
// else the chief's. What was drawn before, by who looked at the data, does not stay: passes are
// begun again by the trainer, and seeded again with each.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace tensorpack {

/// Makes what is random from now on reproducible: first values of variables, dropout and whatever
/// else ops draw, dataflows without a seed of their own, and libtorch's own generators.
///
/// The n-th dataflow without a seed gets the n-th seed derived from `seed`, so that no two draw
/// alike.
void set_global_seed(uint64_t seed);

/// The seed of this process: the one given to set_global_seed(), else the one given to
/// torch::manual_seed(), else one drawn once at random, which the log tells.
uint64_t global_seed();

/// The seed that the user has set by set_global_seed() or torch::manual_seed(); nothing if it was
/// drawn, or will be.
std::optional<uint64_t> user_seed();

/// Takes over `seed`, which another process has drawn, as if it had been drawn here; libtorch's own
/// generators stay. Nothing happens if this process has a seed already.
void adopt_global_seed(uint64_t seed);

/// A seed that was written as a decimal number; nothing if `text` is none.
std::optional<uint64_t> parse_seed(std::string_view text);

/// A seed for something of its own, from a seed and its number or name. The same on every machine;
/// neighbouring numbers give sequences that have nothing to do with each other.
uint64_t derive_seed(uint64_t seed, uint64_t number);
uint64_t derive_seed(uint64_t seed, std::string_view name);

/// A bijection of 64-bit numbers in which every bit depends on every bit.
uint64_t mix_bits(uint64_t number);

namespace detail {
struct SeedSource;
}

/// The seed of a stage of a dataflow: the one it was given, or one that follows from the seed of
/// the process and from how many stages without a seed were made before it.
class StageSeed {
 public:
  StageSeed(std::optional<uint64_t> given = {});  // NOLINT: implicit

  /// For stages that rarely draw: they are counted by themselves, so that they change nothing of
  /// the seeds of others.
  static StageSeed counted_apart();

  /// To be asked when something is drawn, not when the stage is made: see Note [When seeds are
  /// settled].
  uint64_t value() const;

 private:
  StageSeed(std::shared_ptr<detail::SeedSource> source, uint64_t number, bool is_apart);
  static StageSeed counted(bool is_apart);

  std::optional<uint64_t> given_;
  std::shared_ptr<detail::SeedSource> source_;  // null if a seed was given
  uint64_t number_ = 0;
  bool is_apart_ = false;
};

/// What the dataflows of a training follow from. A value; copies settle apart.
class TrainingSeed {
 public:
  /// The seed of the process as it is now.
  TrainingSeed();

  /// From now on, within SeedScope, it is this one. A process whose seed was drawn, and not set by
  /// its user, takes it over.
  void settle(uint64_t seed);

  /// Nothing if it was neither set nor drawn nor settled.
  std::optional<uint64_t> value() const;

 private:
  friend class StageSeed;
  // Of the training whose thread this is, if it follows from this source.
  static uint64_t value_of(detail::SeedSource& source);

  std::shared_ptr<detail::SeedSource> source_;
  std::optional<uint64_t> settled_;
};

/// While it lives, this thread reads dataflows for a training. Threads that work ahead for it
/// (AbandonableThreads) are in its scope, too.
class [[nodiscard]] SeedScope {
 public:
  explicit SeedScope(std::optional<TrainingSeed> seed);
  ~SeedScope();
  SeedScope(const SeedScope&) = delete;
  SeedScope& operator=(const SeedScope&) = delete;

  /// That of the innermost scope of this thread.
  static std::optional<TrainingSeed> current();

 private:
  std::optional<TrainingSeed> outer_;
};

/// While it lives, stages that are made on this thread without a seed follow from this one: for
/// flows that are made while another one is read.
class [[nodiscard]] NestedSeeds {
 public:
  explicit NestedSeeds(uint64_t seed);
  ~NestedSeeds();
  NestedSeeds(const NestedSeeds&) = delete;
  NestedSeeds& operator=(const NestedSeeds&) = delete;

 private:
  friend class StageSeed;
  std::shared_ptr<detail::SeedSource> source();

  uint64_t seed_;
  std::shared_ptr<detail::SeedSource> source_;  // made when the first stage is
  NestedSeeds* outer_;
};

/// Of the training, if this thread is in the scope of one, or of the process; nothing if nobody has
/// set or drawn it.
std::optional<uint64_t> seed_in_force();

}  // namespace tensorpack
