// SPDX-License-Identifier: Apache-2.0
// Where the random numbers of an op come from.
//
// Note [Random streams]
// libtorch draws from one default generator per device, which all threads share. Here every tower
// of a graph draws from a generator of its own: the same program with the same seed gives the same
// bits, whatever else draws, and what was drawn can be saved. Operators that take a generator are
// given it, and recorded with it; for those that take none, the default one has its state while
// they run.
//
// Functions of dataflows draw on several threads at once, from a seed for each datapoint
// (DrawFromSeed). The default generator is left alone there: others draw from it at the same time.
// Operators that take no generator are made of ones that do, and are looked into.
#pragma once

#include <ATen/core/Generator.h>

#include <memory>
#include <optional>

#include "tensorpack/graph/operator_watch.h"

namespace tensorpack {

/// A generator for `device` that is nobody else's, seeded.
at::Generator make_generator(c10::Device device, uint64_t seed);

/// While it lives, the default generator of the device has the state of `generator`, and what is
/// drawn from it counts there. One at a time in a process: others wait.
class [[nodiscard]] LendState {
 public:
  explicit LendState(const at::Generator& generator);
  ~LendState();
  LendState(const LendState&) = delete;
  LendState& operator=(const LendState&) = delete;

 private:
  struct Loan;
  std::unique_ptr<Loan> loan_;
};

/// While it lives, what operators draw on this thread comes from `generator`, unless they are given
/// another one.
class [[nodiscard]] DrawFrom {
 public:
  explicit DrawFrom(at::Generator generator);
  ~DrawFrom();
  DrawFrom(const DrawFrom&) = delete;
  DrawFrom& operator=(const DrawFrom&) = delete;

  /// That of the innermost scope on this thread; undefined outside.
  static at::Generator current();

 private:
  at::Generator outer_;
  std::optional<WatchScope> watch_;
};

/// While it lives, what operators draw on this thread and on the CPU comes from a generator with
/// this seed, made when the first one draws. Scopes within it of either kind go before it.
class [[nodiscard]] DrawFromSeed {
 public:
  explicit DrawFromSeed(uint64_t seed);
  ~DrawFromSeed();
  DrawFromSeed(const DrawFromSeed&) = delete;
  DrawFromSeed& operator=(const DrawFromSeed&) = delete;

 private:
  at::Generator outer_;
  WatchScope watch_;
};

}  // namespace tensorpack
