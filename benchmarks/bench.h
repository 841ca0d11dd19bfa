// SPDX-License-Identifier: Apache-2.0
// The frame of the benchmarks: a list of named entries, each of which measures us against a peer
// within one run.
//
//   void add_engine_benchmarks(Suite& suite) {
//     suite.add("engine/mlp64_replay_vs_eager", [](const Stopwatch& watch) {
//       Mlp replayed, eager;                                        // set-up is not timed
//       return watch.compare({
//           .ours = [&] { replayed.step(); },
//           .peer = [&] { eager.step(); },
//           .peer_name = "eager libtorch",
//       });
//     });
//   }
//
// A peer may live in another process: `.peer = PeerProcess::python("mlp64.py")`.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tensorpack::bench {

/// Thrown by an entry that cannot run on this machine; the suite prints the reason and goes on.
class Skip : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What an entry found. Times are microseconds per step.
struct Figure {
  double value = 0;            ///< The ratio peer / ours, or the plain figure.
  std::string unit = "ratio";  ///< "ratio" (above 1: we are faster), "us", or what `value` counts.
  std::optional<double> ours = {};
  std::optional<double> peer = {};
  std::string peer_name = {};
  int repetitions = 1;
  std::string note = {};  ///< Printed after the peer's name.
};

/// Something that can be timed: a callable that makes one step, or one that makes `n` steps and
/// returns the seconds.
class Timed {
 public:
  Timed() = default;
  template <std::invocable F>
  Timed(F step)  // NOLINT(google-explicit-constructor): lambdas are passed as they are
      : seconds_(time_each(std::move(step))) {}
  template <std::invocable<int64_t> F>
  Timed(F seconds) : seconds_(std::move(seconds)) {}  // NOLINT(google-explicit-constructor)

  double seconds(int64_t steps) const { return seconds_(steps); }

 private:
  static std::function<double(int64_t)> time_each(std::function<void()> step);

  std::function<double(int64_t)> seconds_;
};

struct CompareOptions {
  Timed ours = {};
  Timed peer = {};
  std::string peer_name = {};
  int repetitions = 9;
  double min_seconds = 0.2;  ///< Each repetition makes as many steps as fill this time.
};

struct AlternateOptions {
  std::vector<Timed> sides = {};
  int repetitions = 9;
  double min_seconds = 0.2;
};

struct MeasureOptions {
  Timed step = {};
  int repetitions = 9;
  double min_seconds = 0.2;
};

/// Takes the times of one entry.
class Stopwatch {
 public:
  /// `repetitions`, when not 0, overrules those of the entries.
  explicit Stopwatch(int repetitions = 0) : repetitions_(repetitions) {}

  /// Alternates ours and the peer, so that both see the same weather; the medians count.
  Figure compare(const CompareOptions& options) const;

  /// The same for any number of sides: the median microseconds per step of each.
  std::vector<double> alternate(const AlternateOptions& options) const;

  /// How often each side is timed, when an entry asks for `repetitions`.
  int repetitions(int repetitions) const { return repetitions_ > 0 ? repetitions_ : repetitions; }

  /// The median time of a step, in microseconds.
  Figure measure(const MeasureOptions& options) const;

 private:
  int repetitions_;
};

struct SuiteOptions {
  std::string filter = {};     ///< Run the entries whose name contains this.
  int repetitions = 0;         ///< 0: as each entry says.
  std::string json_path = {};  ///< Empty: write none.
};

/// The entries, in the order in which they were added.
class Suite {
 public:
  using Entry = std::function<Figure(const Stopwatch&)>;

  void add(std::string name, Entry entry);
  std::vector<std::string> names() const;

  /// Runs, prints one table and writes the JSON file. Returns the exit status: 0 unless an entry
  /// threw other than Skip.
  int run(const SuiteOptions& options) const;

 private:
  std::vector<std::pair<std::string, Entry>> entries_;
};

}  // namespace tensorpack::bench
