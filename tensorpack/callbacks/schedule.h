// SPDX-License-Identifier: Apache-2.0
// How a hyper-parameter changes with time, as functions that compose:
//
//   ScheduledHyperParamSetter("learning_rate",
//                             schedule::warm_up(schedule::cosine({.from = 0.1, .length = 90}),
//                                               {.length = 5}))
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace tensorpack {

/// The value at a time, which is the number of epochs, or of steps, that were made: the setter
/// decides. Any function will do.
using Schedule = std::function<double(double time)>;

namespace schedule {

/// From one value to another within `length`, and there it stays.
struct Decay {
  double from = 0;
  double to = 0;
  double length = 0;
};

/// Half a wave of a cosine.
Schedule cosine(Decay decay);
Schedule linear(Decay decay);

struct PolynomialDecay {
  double from = 0;
  double to = 0;
  double length = 0;
  double power = 2;
};

/// to + (from - to) * (1 - time / length) ^ power.
Schedule polynomial(PolynomialDecay decay);

struct ExponentialDecay {
  double from = 0;
  double factor = 0.5;  ///< what it is multiplied by ...
  double every = 1;     ///< ... in so much time, without jumps
};
Schedule exponential(ExponentialDecay decay);
/// The same in jumps, at every multiple of `every`.
Schedule staircase(ExponentialDecay decay);

Schedule constant(double value);

/// Starts with `first`, and has each value from its time on: {{30, 0.01}, {60, 0.001}}.
Schedule steps(double first, std::vector<std::pair<double, double>> points);

struct WarmUp {
  double length = 0;
  double from = 0;  ///< where it begins
};

/// Rises in a straight line to what `then` starts with; then `then` begins, at its time 0.
Schedule warm_up(Schedule then, WarmUp options);

struct OneCycle {
  double peak = 0;
  double length = 0;
  double rise = 0.3;            ///< the share of the length in which it rises
  double start_divisor = 25;    ///< starts from peak / start_divisor ...
  double final_divisor = 25e4;  ///< ... and ends with peak / final_divisor
};

/// Up to the peak and down again, each in half a wave of a cosine.
Schedule one_cycle(OneCycle options);

/// `first` until `length`, then `second`, which begins with its time 0.
Schedule then(Schedule first, double length, Schedule second);

/// Begins again every `period`.
Schedule repeat(Schedule schedule, double period);

/// Multiplied: scale(cosine(...), number_of_towers).
Schedule scale(Schedule schedule, double factor);

}  // namespace schedule
}  // namespace tensorpack
