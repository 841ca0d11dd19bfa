// SPDX-License-Identifier: Apache-2.0
// The cart and pole of Barto, Sutton and Anderson (1983): keep the pole upright by pushing the cart
// left or right.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <random>

/// Every step is worth 1; an episode ends when the pole falls, the cart leaves the track, or after
/// kMaxSteps.
class CartPole {
 public:
  static constexpr int64_t kMaxSteps = 500;
  using State = std::array<float, 4>;  // position, velocity, angle, angular velocity

  explicit CartPole(uint64_t seed) : random_(seed) { reset(); }

  void reset() {
    std::uniform_real_distribution<float> uniform(-0.05F, 0.05F);
    for (float& value : state_) value = uniform(random_);
    steps_ = 0;
  }

  const State& state() const { return state_; }
  int64_t steps() const { return steps_; }

  /// Pushes right or left for 20 ms. True when the episode has ended.
  bool step(bool right) {
    constexpr float kGravity = 9.8F, kPoleMass = 0.1F, kTotalMass = 1.1F, kHalfLength = 0.5F;
    constexpr float kForce = 10, kInterval = 0.02F;
    auto& [x, dx, angle, dangle] = state_;
    const float cosine = std::cos(angle);
    const float sine = std::sin(angle);
    const float push =
        ((right ? kForce : -kForce) + kPoleMass * kHalfLength * dangle * dangle * sine) /
        kTotalMass;
    const float turn = (kGravity * sine - cosine * push) /
                       (kHalfLength * (4.0F / 3 - kPoleMass * cosine * cosine / kTotalMass));
    const float acceleration = push - kPoleMass * kHalfLength * turn * cosine / kTotalMass;
    x += kInterval * dx;
    dx += kInterval * acceleration;
    angle += kInterval * dangle;
    dangle += kInterval * turn;
    ++steps_;
    return has_fallen() || steps_ >= kMaxSteps;
  }

  bool has_fallen() const { return std::abs(state_[0]) > 2.4F || std::abs(state_[2]) > 0.2095F; }

 private:
  std::mt19937_64 random_;
  State state_ = {};
  int64_t steps_ = 0;
};
