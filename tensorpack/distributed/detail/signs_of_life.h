// SPDX-License-Identifier: Apache-2.0
// How processes know of each other's fate when a collective does not end.
//
// A thread in each process writes a beat (a counter, the step, the collective it is in) to the
// shared store about once a second, and reads there the news: the first rank that left or was found
// gone, and why. All calls to the store are made by that thread, because they block when the
// network is cut; nobody waits for it without a limit.
//
// Note [Acting on a signal together]
// A rank that received a signal, to end or to save, writes it to the store. The thread of every
// rank, this one's too, sees it and writes a promise there: the next step after which its training
// loop can stop, and will not go on before it knows what the others have promised. All act on the
// signal after the latest of the promised steps. The threads do that while the loops go on or wait
// for each other, so that no rank is stuck. After a signal to save another round may follow, with
// keys of its own.
//
// A loop whose data does not come asks again and again after the same step. It can still end after
// that one. So, until a step's first collective, the thread leaves the promise to the loop: only
// the loop knows that it takes no data before all have agreed. All end there when no rank has its
// data; if one has, the others wait for theirs. To save, the next step is waited for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/distributed/detail/c10d.h"
#include "tensorpack/utils/launch_environment.h"

namespace tensorpack::detail {

/// What a user can do when a rank is gone.
constexpr const char* kHowToGoOn =
    "Its own output or its host tells why; start the job again, from its latest checkpoint.";

/// Why the processes cannot go on together.
struct News {
  enum class Kind {
    kGone,     ///< a rank was found missing
    kFailed,   ///< a rank left with a reason
    kDone,     ///< a rank left because its work was done
    kStopped,  ///< a rank left, and the others are to do so, too
  };
  Kind kind = Kind::kGone;
  /// For a rank that left: how many collectives it has begun. The others can still complete those.
  int64_t collectives = 0;
  /// "rank 2 left at step 57: ...", without the place of who says it.
  std::string text{};

  /// Who has left all the same takes part in what it has begun.
  bool prevents(int64_t collective) const {
    return kind == Kind::kGone || collective > collectives;
  }
};

/// What a rank said last.
struct Sign {
  int64_t beat = -1;
  int64_t step = 0;
  /// How many collectives it has begun, and the last of them in words.
  int64_t collectives = 0;
  std::string collective{};
  /// How long the beat has stood still, as far as it was watched.
  std::chrono::milliseconds silence{};
};

/// After which step all processes act on which signal.
struct AgreedSignal {
  int64_t step = 0;
  int signal = 0;
};

struct SignsOfLifeOptions {
  /// A connection of its own.
  std::shared_ptr<SharedStore> store;
  LaunchEnvironment environment;
  /// Without a sign for so long a rank counts as gone, even if no connection broke.
  std::chrono::milliseconds longest_silence = std::chrono::seconds(30);
  /// Called on the thread when the news is that somebody is missing.
  std::function<void()> on_missing = [] {};
};

class SignsOfLife {
 public:
  explicit SignsOfLife(SignsOfLifeOptions options);
  /// Leaves, if that was not done.
  ~SignsOfLife();
  SignsOfLife(const SignsOfLife&) = delete;
  SignsOfLife& operator=(const SignsOfLife&) = delete;

  /// Writes the first sign of a rank, which must be there before anybody looks for it.
  static void write_first(SharedStore& store, int rank);

  /// Whether all ranks have left.
  static bool all_have_left(SharedStore& store, int size);

  void set_step(int64_t step);
  /// Counts a collective and returns its number, from 1.
  int64_t begin_collective(std::string what);
  /// A collective that needs all ranks is done: all were in this step.
  void set_met_all();

  std::optional<News> news() const;
  /// The news if they keep the collective of this number from ending.
  std::optional<News> news_against(int64_t collective) const;
  int64_t collectives() const;

  /// While one lives, the signs of all ranks are read often, not only of the next one. Several
  /// threads may each have one.
  class [[nodiscard]] WatchAll {
   public:
    explicit WatchAll(SignsOfLife& signs);
    ~WatchAll();
    WatchAll(const WatchAll&) = delete;
    WatchAll& operator=(const WatchAll&) = delete;

    std::chrono::steady_clock::time_point since() const { return since_; }

   private:
    SignsOfLife& signs_;
    std::chrono::steady_clock::time_point since_;  // of the first of those that live
  };
  /// The signs of all ranks, watched for at least `watched`. Empty when the store does not answer,
  /// or as soon as there are news against the collective.
  std::vector<Sign> look(std::chrono::milliseconds watched, int64_t collective);
  /// How long the store has not answered.
  std::chrono::milliseconds store_silence() const;
  /// The last step that a rank is known to have been in, if it was ever seen.
  std::optional<int64_t> last_step(int rank) const;

  /// Has all agree on a step to act on it after. See Note [Acting on a signal together].
  void share_signal(int signal);
  /// A signal to end by that a rank has shared, as far as this one has seen, or 0.
  int shared_signal() const;
  /// Between steps, with the number of those that were made: the signal that all agreed to act on
  /// here, or 0. Waits for the others' promises, but not for ever: then throws Interrupted. May be
  /// asked again after the same step, until a step begins.
  int agreed_signal(int64_t step);

  /// Tells it to all, unless there is older news.
  void tell(News news);
  /// Tells why this process takes no more part, and returns when the others can know it.
  void leave(News::Kind kind, const std::string& reason);

 private:
  struct State;
  static void run(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // shared with the thread, which may be stuck in a call
};

}  // namespace tensorpack::detail
