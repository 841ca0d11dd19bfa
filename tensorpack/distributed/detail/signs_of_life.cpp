// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/detail/signs_of_life.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{200};
constexpr milliseconds kBetweenBeats{1000};
/// How long rank 0 stays for the others to read why it leaves, and everybody for a store that does
/// not answer.
constexpr seconds kFarewell{3};

std::string sign_key(int rank) { return "life/" + std::to_string(rank); }
std::string informed_key(int rank) { return "informed/" + std::to_string(rank); }
std::string left_key(int rank) { return "left/" + std::to_string(rank); }
std::string signal_key(int round) { return fmt::format("signal/{}", round); }
std::string promise_key(int round, int rank) { return fmt::format("promise/{}/{}", round, rank); }
constexpr const char* kNewsKey = "news";
/// Threads write their promises within a beat or two.
constexpr seconds kPatienceForPromises{20};

std::string encode(const Sign& sign) {
  return fmt::format("{} {} {} {}", sign.beat, sign.step, sign.collectives, sign.collective);
}

Sign decode_sign(const std::string& text) {
  Sign sign;
  std::istringstream in(text);
  in >> sign.beat >> sign.step >> sign.collectives;
  in.ignore(1);
  std::getline(in, sign.collective);
  return sign;
}

std::string encode(const News& news) {
  return fmt::format("{} {} {}", static_cast<int>(news.kind), news.collectives, news.text);
}

News decode_news(const std::string& text) {
  News news;
  int kind = 0;
  std::istringstream in(text);
  in >> kind >> news.collectives;
  in.ignore(1);
  news.kind = static_cast<News::Kind>(kind);
  news.text.assign(std::istreambuf_iterator<char>(in), {});
  return news;
}

std::string in_seconds(milliseconds time) {
  return fmt::format("{:.1f} s", std::chrono::duration<double>(time).count());
}

}  // namespace

struct SignsOfLife::State {
  explicit State(SignsOfLifeOptions given) : options(std::move(given)) {
    seen.resize(static_cast<size_t>(options.environment.size));
  }

  struct Seen {
    Sign sign;
    Clock::time_point changed;
  };

  const SignsOfLifeOptions options;

  mutable std::mutex mutex;
  std::condition_variable changed;
  Sign own;
  std::optional<int64_t> met_all_in_step;
  std::optional<News> news;     // what stands
  std::optional<News> to_tell;  // what the thread is to tell
  std::vector<Seen> seen;       // by rank
  int watchers = 0;
  Clock::time_point watching_since{};  // if there are watchers
  Clock::time_point looked_at{};       // when all signs were read last
  Clock::time_point answered = Clock::now();
  int signal_to_end = 0;  // that this process received
  int shared_signal = 0;  // to end by, that any process received
  bool has_to_save = false;
  int64_t last_step = 0;           // after which the loop has looked
  bool may_wait_for_data = false;  // the loop has begun no collective after that step
  // Of this round of an agreement:
  int round = 0;
  bool is_asked = false;           // the loop has to promise a step when it looks
  std::optional<int64_t> promise;  // the loop does not go beyond it without an agreement
  bool promise_is_told = false;
  std::optional<AgreedSignal> agreed;
  bool leaving = false;
  bool finished = false;
  std::thread thread;

  int rank() const { return options.environment.rank; }
  int size() const { return options.environment.size; }
  SharedStore& store() const { return *options.store; }
  int64_t last_step_of(int rank) const;
  int signal_to_share() const {
    return signal_to_end != 0 ? signal_to_end : has_to_save ? kSignalToSave : 0;
  }

  void beat();
  void look_at(int other);
  void look_around();
  void read_news();
  void learn(News what);
  void find_silent();
  bool has_to_promise() const {
    return !promise_is_told && (promise || (signal_to_share() != 0 && !is_asked));
  }
  bool promise_a_step(int signal);
  void agree_on_signal(bool beat_is_due);
  void begin_next_round();
  void say_farewell();
  void lose_store();
  void tick(bool beat_is_due);
};

// A sign is up to a second old. A rank that has met this one in the step before was to be in the
// same step as this one.
int64_t SignsOfLife::State::last_step_of(int rank) const {
  const int64_t step = seen[static_cast<size_t>(rank)].sign.step;
  if (!met_all_in_step) return step;
  return std::max(step, own.step <= *met_all_in_step + 1 ? own.step : *met_all_in_step);
}

void SignsOfLife::State::beat() {
  std::unique_lock lock(mutex);
  ++own.beat;
  const std::string text = encode(own);
  lock.unlock();
  store().set(sign_key(rank()), text);
}

void SignsOfLife::State::look_at(int other) {
  Sign sign = decode_sign(store().get(sign_key(other)));
  const std::lock_guard lock(mutex);
  Seen& before = seen[static_cast<size_t>(other)];
  if (before.sign.beat != sign.beat) before.changed = Clock::now();
  before.sign = std::move(sign);
}

/// The next rank and rank 0: in a ring every rank is watched by one, at the same cost for any
/// number of ranks. When something is wrong, all.
void SignsOfLife::State::look_around() {
  std::unique_lock lock(mutex);
  const bool all = watchers > 0;
  lock.unlock();
  if (!all) {
    look_at((rank() + 1) % size());
    look_at(0);
    return;
  }
  for (int other = 0; other < size(); ++other) {
    if (other != rank()) look_at(other);
  }
  lock.lock();
  seen[static_cast<size_t>(rank())] = {own, Clock::now()};
  looked_at = Clock::now();
}

void SignsOfLife::State::learn(News what) {
  std::unique_lock lock(mutex);
  if (news) return;
  const bool missing = what.kind != News::Kind::kDone;
  news = std::move(what);
  const bool still_here = !leaving;
  lock.unlock();
  changed.notify_all();
  if (missing && still_here) options.on_missing();
}

void SignsOfLife::State::read_news() {
  std::unique_lock lock(mutex);
  if (news) return;
  const std::optional<News> telling = std::exchange(to_tell, std::nullopt);
  lock.unlock();
  if (telling) {
    learn(decode_news(store().set_first(kNewsKey, encode(*telling))));
  } else if (store().has({kNewsKey})) {
    learn(decode_news(store().get(kNewsKey)));
  } else {
    return;
  }
  store().set(informed_key(rank()), "");
}

void SignsOfLife::State::find_silent() {
  const int next = (rank() + 1) % size();
  const std::lock_guard lock(mutex);
  const Seen& other = seen[static_cast<size_t>(next)];
  const auto silence = std::chrono::duration_cast<milliseconds>(Clock::now() - other.changed);
  if (news || to_tell || silence < options.longest_silence) return;
  to_tell =
      News{.kind = News::Kind::kGone,
           .text = fmt::format("rank {} is gone: no sign of life for {}, last seen in step {}. {}",
                               next, in_seconds(silence), last_step_of(next), kHowToGoOn)};
}

/// For the loop, unless it has done so. False if it is left to the loop, which may wait for data.
bool SignsOfLife::State::promise_a_step(int signal) {
  const bool is_to_end = signal != kSignalToSave;
  if (!promise && may_wait_for_data && is_to_end) {
    is_asked = true;
    return false;
  }
  if (!promise || (may_wait_for_data && !is_to_end)) promise = last_step + 1;
  return true;
}

/// See Note [Acting on a signal together].
void SignsOfLife::State::agree_on_signal(bool beat_is_due) {
  std::unique_lock lock(mutex);
  const int signal = signal_to_share();
  const bool is_told = promise_is_told;
  if (agreed || !(beat_is_due || signal != 0 || promise || is_asked)) return;
  const int this_round = round;  // the loop begins the next one when all have agreed
  lock.unlock();
  if (!is_told) {
    const std::string key = signal_key(this_round);
    if (signal == 0 && !store().has({key})) return;
    const std::string first =
        signal != 0 ? store().set_first(key, std::to_string(signal)) : store().get(key);
    const int shared = std::stoi(first);
    lock.lock();
    if (shared != kSignalToSave) shared_signal = shared;
    if (!promise_a_step(shared)) return;
    promise_is_told = true;
    const std::string text = std::to_string(*promise);
    lock.unlock();
    store().set(promise_key(this_round, rank()), text);
  }
  std::vector<std::string> keys;
  for (int other = 0; other < size(); ++other) keys.push_back(promise_key(this_round, other));
  if (!store().has(keys)) return;
  AgreedSignal all{.signal = std::stoi(store().get(signal_key(this_round)))};
  for (const std::string& key : keys) {
    all.step = std::max<int64_t>(all.step, std::stoll(store().get(key)));
  }
  lock.lock();
  agreed = all;
}

void SignsOfLife::State::begin_next_round() {
  if (agreed->signal == kSignalToSave) has_to_save = false;
  ++round;
  is_asked = false;
  promise.reset();
  promise_is_told = false;
  agreed.reset();
}

/// Where the store is in this process, the others must have read the news before it ends.
void SignsOfLife::State::say_farewell() {
  store().set(left_key(rank()), "");
  store().set(informed_key(rank()), "");
  if (rank() != 0 || options.environment.launcher_hosts_store) return;
  std::vector<std::string> others;
  for (int other = 1; other < size(); ++other) others.push_back(informed_key(other));
  std::unique_lock lock(mutex);
  // Who is gone will not read it, and the others have known it for a while.
  const bool somebody_is_gone = news && news->kind == News::Kind::kGone;
  lock.unlock();
  const auto until = Clock::now() + (somebody_is_gone ? 3 * kTick : milliseconds(kFarewell));
  while (!others.empty() && !store().has(others) && Clock::now() < until) {
    std::this_thread::sleep_for(kTick / 4);
  }
}

void SignsOfLife::State::lose_store() {
  const LaunchEnvironment& place = options.environment;
  const std::string where = fmt::format("{}:{}", place.master_address, place.master_port);
  std::unique_lock lock(mutex);
  const int64_t step = last_step_of(0);
  lock.unlock();
  learn({.kind = News::Kind::kGone,
         .text = place.launcher_hosts_store
                     ? fmt::format("the launcher is gone: its connection at {} was lost. {}", where,
                                   kHowToGoOn)
                     : fmt::format("rank 0 is gone: its connection at {} was lost, last seen in "
                                   "step {}. {}",
                                   where, step, kHowToGoOn)});
}

void SignsOfLife::State::tick(bool beat_is_due) {
  std::unique_lock lock(mutex);
  const bool watching = watchers > 0;
  lock.unlock();
  if (beat_is_due || watching) {
    beat();
    look_around();
    find_silent();
  }
  read_news();
  agree_on_signal(beat_is_due);
  lock.lock();
  answered = Clock::now();
  lock.unlock();
  changed.notify_all();
}

void SignsOfLife::run(const std::shared_ptr<State>& state) {
  State& s = *state;
  Clock::time_point next_beat = Clock::now();
  try {
    for (bool leaving = false; !leaving;) {
      std::unique_lock lock(s.mutex);
      s.changed.wait_for(lock, kTick, [&] { return s.leaving || s.to_tell || s.has_to_promise(); });
      leaving = s.leaving;
      lock.unlock();
      const bool due = Clock::now() >= next_beat;
      if (due) next_beat = Clock::now() + kBetweenBeats;
      s.tick(due);
    }
    s.say_farewell();
  } catch (const std::exception&) {
    s.lose_store();
  }
  const std::lock_guard lock(s.mutex);
  s.finished = true;
  s.changed.notify_all();
}

SignsOfLife::SignsOfLife(SignsOfLifeOptions options)
    : state_(std::make_shared<State>(std::move(options))) {
  for (State::Seen& seen : state_->seen) seen.changed = Clock::now();
  state_->thread = start_thread("signs_of_life", [state = state_] { run(state); });
}

SignsOfLife::~SignsOfLife() {
  leave(News::Kind::kDone, "it closed its process group.");
  std::unique_lock lock(state_->mutex);
  const bool finished = state_->finished;
  lock.unlock();
  if (finished) {
    state_->thread.join();
  } else {
    state_->thread.detach();  // stuck in a call to the store
  }
}

void SignsOfLife::write_first(SharedStore& store, int rank) {
  store.set(sign_key(rank), encode(Sign{.beat = 0}));
}

bool SignsOfLife::all_have_left(SharedStore& store, int size) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < size; ++rank) keys.push_back(left_key(rank));
  return store.has(keys);
}

void SignsOfLife::set_step(int64_t step) {
  const std::lock_guard lock(state_->mutex);
  state_->own.step = step;
  state_->last_step = step;
  state_->may_wait_for_data = true;
}

int64_t SignsOfLife::begin_collective(std::string what) {
  const std::lock_guard lock(state_->mutex);
  state_->own.collective = std::move(what);
  state_->may_wait_for_data = false;
  return ++state_->own.collectives;
}

void SignsOfLife::set_met_all() {
  const std::lock_guard lock(state_->mutex);
  state_->met_all_in_step = state_->own.step;
}

std::optional<News> SignsOfLife::news() const {
  const std::lock_guard lock(state_->mutex);
  return state_->news;
}

std::optional<News> SignsOfLife::news_against(int64_t collective) const {
  const std::lock_guard lock(state_->mutex);
  return state_->news && state_->news->prevents(collective) ? state_->news : std::nullopt;
}

int64_t SignsOfLife::collectives() const {
  const std::lock_guard lock(state_->mutex);
  return state_->own.collectives;
}

SignsOfLife::WatchAll::WatchAll(SignsOfLife& signs) : signs_(signs) {
  State& state = *signs_.state_;
  const std::lock_guard lock(state.mutex);
  if (state.watchers++ == 0) state.watching_since = Clock::now();
  since_ = state.watching_since;
}

SignsOfLife::WatchAll::~WatchAll() {
  const std::lock_guard lock(signs_.state_->mutex);
  --signs_.state_->watchers;
}

std::vector<Sign> SignsOfLife::look(milliseconds watched, int64_t collective) {
  const WatchAll watch(*this);
  std::unique_lock lock(state_->mutex);
  const auto from = watch.since() + watched;
  const auto useless = [&] {
    return state_->finished || (state_->news && state_->news->prevents(collective));
  };
  const auto until = std::max(from, Clock::now()) + kFarewell;
  if (!state_->changed.wait_until(lock, until,
                                  [&] { return useless() || state_->looked_at >= from; }) ||
      useless()) {
    return {};
  }
  std::vector<Sign> signs;
  for (const State::Seen& seen : state_->seen) {
    signs.push_back(seen.sign);
    signs.back().silence = std::chrono::duration_cast<milliseconds>(Clock::now() - seen.changed);
  }
  return signs;
}

milliseconds SignsOfLife::store_silence() const {
  const std::lock_guard lock(state_->mutex);
  return std::chrono::duration_cast<milliseconds>(Clock::now() - state_->answered);
}

std::optional<int64_t> SignsOfLife::last_step(int rank) const {
  const std::lock_guard lock(state_->mutex);
  const bool was_seen =
      state_->seen[static_cast<size_t>(rank)].sign.beat >= 0 || state_->met_all_in_step;
  return was_seen ? std::optional(state_->last_step_of(rank)) : std::nullopt;
}

void SignsOfLife::share_signal(int signal) {
  const std::lock_guard lock(state_->mutex);
  if (signal == kSignalToSave) state_->has_to_save = true;
  if (signal != kSignalToSave) state_->signal_to_end = signal;
}

int SignsOfLife::shared_signal() const {
  const std::lock_guard lock(state_->mutex);
  return state_->signal_to_end != 0 ? state_->signal_to_end : state_->shared_signal;
}

// Who knows of a signal stops at the step it is at, so that the others are soon found waiting for
// it.
int SignsOfLife::agreed_signal(int64_t step) {
  std::unique_lock lock(state_->mutex);
  state_->may_wait_for_data = step == state_->last_step;
  state_->last_step = step;
  if (!state_->promise && (state_->signal_to_share() != 0 || state_->is_asked)) {
    state_->promise = step;
    state_->changed.notify_all();
  }
  if (!state_->promise || step < *state_->promise) return 0;
  state_->changed.wait_for(lock, kPatienceForPromises,
                           [&] { return state_->agreed || state_->news || state_->finished; });
  if (state_->agreed) {
    if (step < state_->agreed->step) return 0;
    const int signal = state_->agreed->signal;
    if (signal == kSignalToSave) state_->begin_next_round();
    return signal;
  }
  if (state_->news || state_->finished) return 0;  // the next collective tells why
  logging::warning("Not all ranks have said within {} s after which step they can act on a signal.",
                   kPatienceForPromises.count());
  throw Interrupted(state_->signal_to_end != 0 ? state_->signal_to_end : SIGTERM);
}

void SignsOfLife::tell(News news) {
  std::unique_lock lock(state_->mutex);
  if (state_->news || state_->finished) return;
  state_->to_tell = std::move(news);
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kFarewell, [&] { return state_->news || state_->finished; });
}

void SignsOfLife::leave(News::Kind kind, const std::string& reason) {
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->leaving, true)) return;
  if (!state_->news) {
    state_->to_tell = News{.kind = kind,
                           .collectives = state_->own.collectives,
                           .text = fmt::format("rank {} left at step {}: {}", state_->rank(),
                                               state_->own.step, reason)};
  }
  state_->changed.notify_all();
  state_->changed.wait_for(lock, kFarewell + seconds(1), [&] { return state_->finished; });
}

}  // namespace tensorpack::detail
