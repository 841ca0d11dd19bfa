// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/seed.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <charconv>
#include <mutex>
#include <random>
#include <utility>

#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace detail {

enum class SeedOrigin { kDrawn, kOfLibtorch, kSet };

/// A seed, and how many stages follow from it. There is one for the process, and another one after
/// each set_global_seed().
struct SeedSource {
  SeedSource() = default;
  explicit SeedSource(uint64_t given) { know(given, SeedOrigin::kSet); }

  std::atomic<uint64_t> seed = 0;
  std::atomic<bool> is_known = false;
  std::atomic<SeedOrigin> origin = SeedOrigin::kDrawn;
  std::atomic<uint64_t> stages = 0;
  std::atomic<uint64_t> stages_apart = 0;
  std::shared_ptr<SeedSource> successor;  // with the mutex: what was set before this one was

  void know(uint64_t value, SeedOrigin from) {
    seed = value;
    origin = from;
    is_known = true;
  }
  bool is_set() const { return origin == SeedOrigin::kSet; }
};

}  // namespace detail

namespace {

using detail::SeedOrigin;
using detail::SeedSource;

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// If torch::manual_seed() was not called, libtorch has drawn one at random. That is before main(),
// so that what differs from it later was given.
const uint64_t drawn_by_libtorch = at::detail::getDefaultCPUGenerator().current_seed();

// What torch::manual_seed() was given, or what was drawn.
std::optional<uint64_t> seed_of_libtorch() {
  const uint64_t seed = at::detail::getDefaultCPUGenerator().current_seed();
  return seed == c10::default_rng_seed_val ? std::nullopt : std::optional<uint64_t>(seed);
}

struct Process {
  std::mutex mutex;
  std::shared_ptr<SeedSource> source = std::make_shared<SeedSource>();
};

Process& process() {
  static Process instance;
  return instance;
}

std::shared_ptr<SeedSource> source_of_process() {
  const std::lock_guard lock(process().mutex);
  return process().source;
}

std::optional<TrainingSeed>& seed_of_thread() {
  thread_local std::optional<TrainingSeed> seed;
  return seed;
}

thread_local NestedSeeds* nested_seeds = nullptr;

void tell(uint64_t seed) {
  logging::info(
      "Random numbers come from seed {0}. set_global_seed({0}) repeats this run, unless it resumes "
      "a "
      "checkpoint, whose random numbers go on.",
      seed);
}

// The seed of `source`, which is found or drawn if it is not known.
uint64_t known_or_drawn(SeedSource& source) {
  if (source.is_known) return source.seed;
  const std::lock_guard lock(process().mutex);
  if (source.is_known) return source.seed;
  const std::optional<uint64_t> of_libtorch = seed_of_libtorch();
  if (of_libtorch) {
    const bool is_drawn = *of_libtorch == drawn_by_libtorch;
    source.know(*of_libtorch, is_drawn ? SeedOrigin::kDrawn : SeedOrigin::kOfLibtorch);
  } else {
    std::random_device device;
    source.know((uint64_t{device()} << 32) | device(), SeedOrigin::kDrawn);
    at::manual_seed(source.seed);
  }
  tell(source.seed);
  return source.seed;
}

std::shared_ptr<SeedSource> successor_of(const SeedSource& source) {
  if (source.is_known) return nullptr;
  const std::lock_guard lock(process().mutex);
  return source.successor;
}

}  // namespace

// Stages that were made earlier follow from this one, too, with seeds that are not those of later
// stages; unless they have one that the user has set.
void set_global_seed(uint64_t seed) {
  const std::lock_guard lock(process().mutex);
  const auto earlier = std::exchange(process().source, std::make_shared<SeedSource>(seed));
  if (!earlier->is_set()) {
    earlier->successor = process().source;
    earlier->is_known = false;
  }
  at::manual_seed(seed);
}

uint64_t global_seed() { return known_or_drawn(*source_of_process()); }

std::optional<uint64_t> user_seed() {
  const std::shared_ptr<SeedSource> source = source_of_process();
  if (source->is_known) {
    return source->origin == SeedOrigin::kDrawn ? std::nullopt : std::optional(source->seed.load());
  }
  const std::optional<uint64_t> of_libtorch = seed_of_libtorch();
  return of_libtorch == drawn_by_libtorch ? std::nullopt : of_libtorch;
}

void adopt_global_seed(uint64_t seed) {
  const std::lock_guard lock(process().mutex);
  SeedSource& source = *process().source;
  if (source.is_known) return;
  source.know(seed, SeedOrigin::kDrawn);
  tell(seed);
}

StageSeed::StageSeed(std::optional<uint64_t> given) : given_(given) {
  if (!given) *this = counted(/*is_apart=*/false);
}

StageSeed::StageSeed(std::shared_ptr<SeedSource> source, uint64_t number, bool is_apart)
    : source_(std::move(source)), number_(number), is_apart_(is_apart) {}

StageSeed StageSeed::counted_apart() { return counted(/*is_apart=*/true); }

StageSeed StageSeed::counted(bool is_apart) {
  auto source = nested_seeds != nullptr ? nested_seeds->source() : source_of_process();
  const uint64_t number = is_apart ? source->stages_apart++ : source->stages++;
  return {std::move(source), number, is_apart};
}

uint64_t StageSeed::value() const {
  if (given_) return *given_;
  const uint64_t base = TrainingSeed::value_of(*source_);
  return derive_seed(is_apart_ ? derive_seed(base, "apart") : base, number_);
}

TrainingSeed::TrainingSeed() : source_(source_of_process()) {}

void TrainingSeed::settle(uint64_t seed) {
  settled_ = seed;
  const bool is_known = source_->is_known && source_->seed == seed;
  if (!source_->is_set() && !is_known) source_->know(seed, SeedOrigin::kDrawn);
}

std::optional<uint64_t> TrainingSeed::value() const {
  if (settled_) return settled_;
  if (source_->is_known) return source_->seed;
  return std::nullopt;
}

uint64_t TrainingSeed::value_of(SeedSource& source) {
  const std::optional<TrainingSeed>& own = seed_of_thread();
  if (own && own->settled_ && own->source_.get() == &source) return *own->settled_;
  if (const auto successor = successor_of(source)) {
    return derive_seed(value_of(*successor), "earlier");
  }
  return known_or_drawn(source);
}

SeedScope::SeedScope(std::optional<TrainingSeed> seed)
    : outer_(std::exchange(seed_of_thread(), std::move(seed))) {}

SeedScope::~SeedScope() { seed_of_thread() = std::move(outer_); }

std::optional<TrainingSeed> SeedScope::current() { return seed_of_thread(); }

NestedSeeds::NestedSeeds(uint64_t seed) : seed_(seed), outer_(std::exchange(nested_seeds, this)) {}

NestedSeeds::~NestedSeeds() { nested_seeds = outer_; }

std::shared_ptr<SeedSource> NestedSeeds::source() {
  if (!source_) source_ = std::make_shared<SeedSource>(seed_);
  return source_;
}

std::optional<uint64_t> seed_in_force() {
  return seed_of_thread().value_or(TrainingSeed()).value();
}

std::optional<uint64_t> parse_seed(std::string_view text) {
  uint64_t seed = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, seed);
  if (error != std::errc() || rest != end) return std::nullopt;
  return seed;
}

uint64_t mix_bits(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// Two mixes: neighbouring seeds and neighbouring numbers must not meet on the same sequence.
uint64_t derive_seed(uint64_t seed, uint64_t number) {
  return mix_bits(mix_bits(seed + kGolden) + (number + 1) * kGolden);
}

// FNV-1a: a name gives the same seed on every machine and with every standard library.
uint64_t derive_seed(uint64_t seed, std::string_view name) {
  uint64_t hash = 14695981039346656037ULL ^ (seed * kGolden);
  for (unsigned char c : name) hash = (hash ^ c) * 1099511628211ULL;
  return hash;
}

}  // namespace tensorpack
