// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/rng.h"

#include <cmath>
#include <numbers>

namespace tensorpack {

Rng::Rng(uint64_t seed, int64_t pass) : state_(derive_seed(seed, static_cast<uint64_t>(pass))) {}

uint64_t Rng::operator()() { return mix_bits(state_ += 0x9e3779b97f4a7c15); }

uint64_t Rng::below(uint64_t bound) {
  // The lowest `skip` values would make the small remainders more likely than the others.
  const uint64_t skip = -bound % bound;
  uint64_t value = (*this)();
  while (value < skip) value = (*this)();
  return value % bound;
}

int64_t Rng::between(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
}

double Rng::uniform() {
  constexpr int kBits = std::numeric_limits<double>::digits;
  return std::ldexp(static_cast<double>((*this)() >> (64 - kBits)), -kBits);
}

double Rng::uniform(double low, double high) { return low + (high - low) * uniform(); }

double Rng::normal() {
  // The second number that this transformation of Box and Muller gives is not kept: what is drawn
  // next would depend on how often it was asked for.
  const double radius = std::sqrt(-2 * std::log1p(-uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

bool Rng::chance(double probability) { return uniform() < probability; }

}  // namespace tensorpack
