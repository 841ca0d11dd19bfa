// SPDX-License-Identifier: Apache-2.0
// The one seed that everything random in a process follows from.
#pragma once

#include <cstdint>
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

/// `seed` if there is one, else the next seed derived from global_seed().
uint64_t seed_or_next(std::optional<uint64_t> seed);

/// A seed for something of its own, from a seed and its number or name. The same on every machine;
/// neighbouring numbers give sequences that have nothing to do with each other.
uint64_t derive_seed(uint64_t seed, uint64_t number);
uint64_t derive_seed(uint64_t seed, std::string_view name);

/// A bijection of 64-bit numbers in which every bit depends on every bit.
uint64_t mix_bits(uint64_t number);

}  // namespace tensorpack
