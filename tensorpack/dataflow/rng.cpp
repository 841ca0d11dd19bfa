// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/rng.h"

#include <mutex>
#include <numeric>
#include <random>
#include <utility>

#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;

// Two mixes: neighbouring seeds and neighbouring passes must not meet on the same sequence.
uint64_t derive(uint64_t seed, uint64_t number) {
  return mix(mix(seed + kGolden) + (number + 1) * kGolden);
}

struct GlobalSeed {
  std::mutex mutex;
  std::optional<uint64_t> seed;
  uint64_t handed_out = 0;

  uint64_t get() {
    if (!seed) {
      std::random_device device;
      seed = (uint64_t{device()} << 32) | device();
      log::info("Dataflows draw from seed {0}. set_global_seed({0}) repeats this run.", *seed);
    }
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
}

uint64_t global_seed() {
  std::lock_guard lock(state().mutex);
  return state().get();
}

uint64_t seed_or_next(std::optional<uint64_t> seed) {
  if (seed) return *seed;
  std::lock_guard lock(state().mutex);
  return derive(state().get(), state().handed_out++);
}

Rng::Rng(uint64_t seed, int64_t pass) : state_(derive(seed, static_cast<uint64_t>(pass))) {}

uint64_t Rng::operator()() { return mix(state_ += kGolden); }

uint64_t Rng::below(uint64_t bound) {
  // The lowest `skip` values would make the small remainders more likely than the others.
  const uint64_t skip = -bound % bound;
  uint64_t value = (*this)();
  while (value < skip) value = (*this)();
  return value % bound;
}

std::vector<int64_t> random_permutation(int64_t size, Rng& rng) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
  return order;
}

}  // namespace tensorpack
