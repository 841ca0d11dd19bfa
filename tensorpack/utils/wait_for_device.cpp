// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/wait_for_device.h"

#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kBetweenChecks{100};

struct Entry {
  std::thread::id thread;
  WaitCheck::Check check;
};

// A check may end on another thread than the one that it is for.
struct Registry {
  std::mutex mutex;
  std::map<const WaitCheck*, Entry> entries;

  std::vector<WaitCheck::Check> of_this_thread() {
    const std::lock_guard lock(mutex);
    std::vector<WaitCheck::Check> checks;
    for (const auto& [owner, entry] : entries) {
      if (entry.thread == std::this_thread::get_id()) checks.push_back(entry.check);
    }
    return checks;
  }
};

Registry& registry() {
  static auto* const all = new Registry;  // outlives whatever waits while the process ends
  return *all;
}

void wait_until(const std::function<bool()>& is_done, const std::vector<WaitCheck::Check>& checks) {
  const auto begun = Clock::now();
  auto next_check = begun + kBetweenChecks;
  while (!is_done()) {
    std::this_thread::yield();
    if (Clock::now() < next_check) continue;
    next_check = Clock::now() + kBetweenChecks;
    const auto waited = std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
    for (const WaitCheck::Check& check : checks) check(waited);
  }
}

}  // namespace

WaitCheck::WaitCheck(Check check) {
  const std::lock_guard lock(registry().mutex);
  registry().entries.emplace(this, Entry{std::this_thread::get_id(), std::move(check)});
}

WaitCheck::~WaitCheck() {
  const std::lock_guard lock(registry().mutex);
  registry().entries.erase(this);
}

void wait_for(const c10::Event& event) {
  const std::vector<WaitCheck::Check> checks = registry().of_this_thread();
  if (checks.empty()) return synchronize(event);  // which may sleep
  wait_until([&] { return event.query(); }, checks);
}

void wait_until(const std::function<bool()>& is_done) {
  wait_until(is_done, registry().of_this_thread());
}

}  // namespace tensorpack
