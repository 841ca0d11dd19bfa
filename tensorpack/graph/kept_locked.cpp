// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/kept_locked.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

thread_local const KeptLocked* innermost_kept = nullptr;

// A thread that keeps some graphs locked and waits for another one.
struct Waiting {
  std::set<const Graph*> kept;
  const Graph* wanted;
};

std::mutex& waiting_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::vector<const Waiting*>& waiting_threads() {
  static auto* const threads = new std::vector<const Waiting*>;
  return *threads;
}

// Whether whoever keeps `graph` locked waits for one of `kept`, or for who waits for one, and so
// on.
bool waits_for(const Graph* graph, const std::set<const Graph*>& kept,
               std::set<const Graph*>& seen) {
  if (kept.contains(graph)) return true;
  if (!seen.insert(graph).second) return false;
  return std::ranges::any_of(waiting_threads(), [&](const Waiting* other) {
    return other->kept.contains(graph) && waits_for(other->wanted, kept, seen);
  });
}

class WaitingScope {
 public:
  explicit WaitingScope(const Waiting& self) : self_(&self) {
    const std::lock_guard lock(waiting_mutex());
    std::set<const Graph*> seen;
    TP_CHECK(
        !waits_for(self.wanted, self.kept, seen), "graph",
        "a function of an op that keeps the variables of its graph locked, because it runs eagerly "
        "or is recorded, asks for those of another graph, as a prediction does, and a function of "
        "that one asks for those of the first: both would wait for ever. Let one of the two "
        "trainings predict in its dataflow or in a callback.");
    waiting_threads().push_back(self_);
  }
  ~WaitingScope() {
    const std::lock_guard lock(waiting_mutex());
    std::erase(waiting_threads(), self_);
  }
  WaitingScope(const WaitingScope&) = delete;
  WaitingScope& operator=(const WaitingScope&) = delete;

 private:
  const Waiting* self_;
};

}  // namespace

KeptLocked::KeptLocked(const Graph& graph)
    : graph_(graph), outer_(std::exchange(innermost_kept, this)) {}

KeptLocked::~KeptLocked() { innermost_kept = outer_; }

void lock_in_turn(std::unique_lock<std::recursive_mutex>& lock, const Graph& wanted) {
  if (lock.try_lock()) return;
  if (innermost_kept == nullptr) return lock.lock();
  Waiting self{.kept = {}, .wanted = &wanted};
  for (const KeptLocked* scope = innermost_kept; scope != nullptr; scope = scope->outer()) {
    self.kept.insert(&scope->graph());
  }
  const WaitingScope scope(self);
  lock.lock();
}

}  // namespace tensorpack
