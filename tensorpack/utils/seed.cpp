// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/seed.h"

#include <ATen/Context.h>
#include <c10/core/GeneratorImpl.h>

#include <mutex>
#include <random>

#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// What torch::manual_seed() was given, if it was called.
std::optional<uint64_t> seed_of_libtorch() {
  const uint64_t seed = at::globalContext().defaultGenerator(at::kCPU).current_seed();
  return seed == c10::default_rng_seed_val ? std::nullopt : std::optional<uint64_t>(seed);
}

struct GlobalSeed {
  std::mutex mutex;
  std::optional<uint64_t> seed;
  uint64_t handed_out = 0;

  uint64_t get() {
    if (seed) return *seed;
    seed = seed_of_libtorch();
    if (!seed) {
      std::random_device device;
      seed = (uint64_t{device()} << 32) | device();
      at::manual_seed(*seed);
    }
    log::info("Random numbers come from seed {0}. set_global_seed({0}) repeats this run.", *seed);
    return *seed;
  }
};

GlobalSeed& state() {
  static GlobalSeed instance;
  return instance;
}

}  // namespace

void set_global_seed(uint64_t seed) {
  std::lock_guard lock(state().mutex);
  state().seed = seed;
  state().handed_out = 0;
  at::manual_seed(seed);
}

uint64_t global_seed() {
  std::lock_guard lock(state().mutex);
  return state().get();
}

uint64_t seed_or_next(std::optional<uint64_t> seed) {
  if (seed) return *seed;
  std::lock_guard lock(state().mutex);
  return derive_seed(state().get(), state().handed_out++);
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
