// SPDX-License-Identifier: Apache-2.0
// After the specification of the xxHash algorithm; little-endian machines only.
#include "tensorpack/utils/hash.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace tensorpack {
namespace {

static_assert(std::endian::native == std::endian::little);

using Lanes = std::array<std::uint64_t, 4>;
constexpr std::ptrdiff_t kStripe = sizeof(Lanes);

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5;

template <typename T>
T load(const unsigned char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

std::uint64_t mix(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

std::uint64_t merge(std::uint64_t hash, std::uint64_t lane) {
  return (hash ^ mix(0, lane)) * kPrime1 + kPrime4;
}

// Four lanes, so that the processor can work on four words at once. Returns where it stopped.
const unsigned char* mix_stripes(Lanes& lanes, const unsigned char* bytes,
                                 const unsigned char* end) {
  Lanes mixed = lanes;  // a copy, to stay in registers
  for (; end - bytes >= kStripe; bytes += kStripe) {
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      mixed[i] = mix(mixed[i], load<std::uint64_t>(bytes + 8 * i));
    }
  }
  lanes = mixed;
  return bytes;
}

std::uint64_t join(const Lanes& lanes) {
  std::uint64_t hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
                       std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) hash = merge(hash, lane);
  return hash;
}

std::uint64_t hash_rest(const unsigned char* bytes, const unsigned char* end, std::uint64_t hash) {
  for (; end - bytes >= 8; bytes += 8) {
    hash = std::rotl(hash ^ mix(0, load<std::uint64_t>(bytes)), 27) * kPrime1 + kPrime4;
  }
  if (end - bytes >= 4) {
    hash = std::rotl(hash ^ load<std::uint32_t>(bytes) * kPrime1, 23) * kPrime2 + kPrime3;
    bytes += 4;
  }
  for (; bytes < end; ++bytes) hash = std::rotl(hash ^ *bytes * kPrime5, 11) * kPrime1;
  return hash;
}

}  // namespace

Xxh64::Xxh64(std::uint64_t seed)
    : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1} {}

void Xxh64::add(std::string_view text) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char* end = bytes + text.size();
  size_ += text.size();
  if (rest_size_ > 0) {  // of the text before
    const std::size_t taken = std::min(rest_.size() - rest_size_, text.size());
    std::memcpy(rest_.data() + rest_size_, bytes, taken);
    rest_size_ += taken;
    bytes += taken;
    if (rest_size_ < rest_.size()) return;
    mix_stripes(lanes_, rest_.data(), rest_.data() + rest_.size());
  }
  bytes = mix_stripes(lanes_, bytes, end);
  rest_size_ = static_cast<std::size_t>(end - bytes);
  if (rest_size_ > 0) std::memcpy(rest_.data(), bytes, rest_size_);
}

std::uint64_t Xxh64::value() const {
  std::uint64_t hash = size_ >= kStripe ? join(lanes_) : seed_ + kPrime5;
  hash = hash_rest(rest_.data(), rest_.data() + rest_size_, hash + size_);
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

std::uint64_t xxh64(std::string_view bytes, std::uint64_t seed) {
  Xxh64 hash(seed);
  hash.add(bytes);
  return hash.value();
}

}  // namespace tensorpack
