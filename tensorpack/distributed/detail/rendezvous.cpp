// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/detail/rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tensorpack/distributed/detail/call_within.h"
#include "tensorpack/distributed/detail/network.h"
#include "tensorpack/distributed/detail/signs_of_life.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::string here_key(int rank) { return "here/" + std::to_string(rank); }
std::string address_key(int rank) { return "address/" + std::to_string(rank); }

std::string seconds_of(milliseconds time) {
  return fmt::format("{:g} s", std::chrono::duration<double>(time).count());
}

/// c10d's words, to stand within a sentence.
std::string reason(const std::exception& error) {
  std::string text = describe(error);
  while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.pop_back();
  return text;
}

// Note [Several groups of one job]
// A program may train several times, one after the other or at once: each training has a process
// group with keys and connections of its own. The n-th group that one rank creates is the n-th of
// every other rank, and n is part of its keys. All of them meet at one store, which rank 0 hosts
// until its process ends, because another rank may come to the next group while rank 0 still
// closes the last one.

/// What this process keeps between the groups that it creates at one meeting point.
struct Job {
  std::shared_ptr<SharedStore> hosted{};  // by rank 0
  // By rank: towers and tests have several in one process.
  std::map<int, int> groups{};
  std::map<int, int> announced{};  // the last group that each announced
};

std::mutex jobs_mutex;

/// By meeting point. Never destroyed: the servers of stores end with the process.
std::map<std::string, std::shared_ptr<Job>>& jobs() {
  static auto* const instance = new std::map<std::string, std::shared_ptr<Job>>;
  return *instance;
}

/// The next group of one rank, counted from 1. See Note [Several groups of one job].
class NextGroup {
 public:
  NextGroup(std::string meeting_point, const LaunchEnvironment& place)
      : meeting_point_(std::move(meeting_point)), place_(place) {
    const std::lock_guard lock(jobs_mutex);
    std::shared_ptr<Job>& job = jobs()[meeting_point_];
    if (!job) job = std::make_shared<Job>();
    job_ = job;
    number_ = ++job_->groups[place_.rank];
  }
  /// A group that was not made may be tried again, the first one with another store.
  ~NextGroup() {
    if (is_made_) return;
    const std::lock_guard lock(jobs_mutex);
    int& groups = job_->groups[place_.rank];
    if (groups == number_) --groups;
    if (groups == 0 && place_.rank == 0) job_->hosted.reset();
  }
  NextGroup(const NextGroup&) = delete;
  NextGroup& operator=(const NextGroup&) = delete;

  int number() const { return number_; }

  /// The store that this process hosts: what `host` returned to the first group.
  template <typename Host>
  std::shared_ptr<SharedStore> hosted(const Host& host) const {
    const std::lock_guard lock(jobs_mutex);
    if (!job_->hosted) job_->hosted = host();
    return job_->hosted;
  }

  /// Whether this process announced the group before, in a try that failed.
  bool note_announced() const {
    const std::lock_guard lock(jobs_mutex);
    return std::exchange(job_->announced[place_.rank], number_) == number_;
  }

  void set_made() {
    is_made_ = true;
    const std::lock_guard lock(jobs_mutex);
    // With all ranks in this process no other can come: the store ends with their groups.
    const bool all_are_here = std::ssize(job_->groups) == place_.size;
    const auto found = jobs().find(meeting_point_);
    if (all_are_here && found != jobs().end() && found->second == job_) jobs().erase(found);
  }

 private:
  const std::string meeting_point_;
  const LaunchEnvironment& place_;
  std::shared_ptr<Job> job_;
  int number_ = 0;
  bool is_made_ = false;
};

class Rendezvous {
 public:
  Rendezvous(const LaunchEnvironment& place, milliseconds timeout)
      : place_(place),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        hosts_store_(place.rank == 0 && !place.launcher_hosts_store) {}

  Meeting meet() {
    if (place_.size == 1) {
      return {.store = local_store(), .store_for_signs = local_store(), .address = "127.0.0.1"};
    }
    NextGroup group(meeting_point(), place_);
    number_of_group_ = group.number();
    Meeting meeting;
    if (hosts_store_) meeting.hosted = group.hosted([this] { return host(); });
    meeting.store = connect();  // rank 0, too: MASTER_ADDR may name another host than its own
    meeting.address = local_address_towards(place_.master_address, place_.master_port);
    announce(*meeting.store, meeting.address, group.note_announced());
    wait_for_all(*meeting.store);
    find_outside_address(*meeting.store, meeting.address);
    meeting.store_for_signs = open(/*host=*/false);
    group.set_made();
    return meeting;
  }

 private:
  std::string where() const { return describe_place(place_); }
  std::string meeting_point() const {
    return fmt::format("{}:{}", place_.master_address, place_.master_port);
  }

  std::shared_ptr<SharedStore> open(bool host) const {
    return open_store({.address = host ? "localhost" : place_.master_address,
                       .port = place_.master_port,
                       .host = host,
                       .prefix = fmt::format("tensorpack/{}/{}", place_.attempt, number_of_group_),
                       // It counts whole seconds, and somebody is there already.
                       .timeout = std::max<milliseconds>(timeout_, std::chrono::seconds(5))});
  }

  std::shared_ptr<SharedStore> host() const {
    try {
      return open(/*host=*/true);
    } catch (const std::exception& error) {
      throw make_error(
          where(),
          "cannot listen at port {}, where the others are to find this process: {}. Set "
          "MASTER_PORT to a port that is free.",
          place_.master_port, reason(error));
    }
  }

  std::shared_ptr<SharedStore> connect() const {
    const std::string who = place_.launcher_hosts_store ? "the launcher"
                            : hosts_store_              ? "the store of this process"
                                                        : "rank 0";
    const std::string why = wait_for_port(place_.master_address, place_.master_port, deadline_);
    TP_CHECK(
        why.empty(), where(),
        "{} could not be reached at {} for {}: {}. Look whether it was started and is still "
        "there, whether the address is right as seen from {}, and whether a firewall is between "
        "them.",
        who, meeting_point(), seconds_of(timeout_), why, host_name());
    // The answer takes a moment, also of a rank 0 that came just before the deadline.
    const auto until = std::max(deadline_, Clock::now() + std::chrono::seconds(1));
    check_store(who, reason_not_store(place_.master_address, place_.master_port, until));
    try {
      return open(/*host=*/false);
    } catch (const std::exception& error) {
      check_store(who, reason(error));
      throw;
    }
  }

  void check_store(const std::string& who, const std::string& why_not) const {
    TP_CHECK(
        why_not.empty(), where(),
        "{} at {} does not answer as it should within {}: {}. Is that port of another program? "
        "Set MASTER_PORT to another one.",
        who, meeting_point(), seconds_of(timeout_), why_not);
  }

  void announce(SharedStore& store, const std::string& address, bool is_again) const {
    SignsOfLife::write_first(store, place_.rank);
    store.set(address_key(place_.rank), address);
    const int64_t count = store.add(here_key(place_.rank), 1);
    TP_CHECK(
        count == 1 || is_again, where(),
        "another process has come to {} as rank {} before this one. Two jobs use one port, or a "
        "rank was started twice: set MASTER_PORT to another port.",
        meeting_point(), place_.rank);
  }

  std::vector<std::string> missing(SharedStore& store) const {
    std::vector<std::string> ranks;
    for (int rank = 0; rank < place_.size; ++rank) {
      if (!store.has({here_key(rank)})) ranks.push_back(std::to_string(rank));
    }
    return ranks;
  }

  void wait_for_all(SharedStore& store) const {
    constexpr milliseconds kBetweenLooks{20};
    constexpr std::chrono::seconds kPatience{10};
    std::vector<std::string> all;
    for (int rank = 0; rank < place_.size; ++rank) all.push_back(here_key(rank));
    auto say_at = Clock::now() + kPatience;
    try {
      while (!store.has(all)) {
        TP_CHECK(Clock::now() < deadline_, where(), "{}", did_not_come(missing(store)));
        if (Clock::now() >= say_at && place_.rank == 0) {
          logging::info("Waiting for rank {} of {} processes.", join(missing(store)), place_.size);
          say_at = Clock::now() + 6 * kPatience;
        }
        std::this_thread::sleep_for(kBetweenLooks);
      }
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw make_error(where(),
                       "rank 0 at {} ended while the ranks were still coming: {}. Look at what it "
                       "said.",
                       meeting_point(), reason(error));
    }
  }

  std::string did_not_come(const std::vector<std::string>& ranks) const {
    return fmt::format(
        "{} {} of {} did not come within {}. Look whether {} started and what {} said; a longer "
        "timeout is set by TENSORPACK_TIMEOUT, in seconds.",
        ranks.size() == 1 ? "rank" : "ranks", join(ranks), place_.size, seconds_of(timeout_),
        ranks.size() == 1 ? "it was" : "they were", ranks.size() == 1 ? "it" : "they");
  }

  /// The name of the first host may stand for 127.0.1.1 there, as on Debian. Its way to somebody
  /// elsewhere tells by which address the others can reach it.
  void find_outside_address(SharedStore& store, std::string& address) const {
    if (place_.local_size == place_.size || !is_loopback(address)) return;
    for (int rank = 0; rank < place_.size; ++rank) {
      const std::string other = store.get(address_key(rank));
      if (other.empty() || is_loopback(other)) continue;
      address = local_address_towards(other, place_.master_port);
      return;
    }
  }

  const LaunchEnvironment& place_;
  const milliseconds timeout_;
  const Clock::time_point deadline_;
  const bool hosts_store_;
  int number_of_group_ = 1;
};

}  // namespace

std::string describe_place(const LaunchEnvironment& place) {
  return fmt::format("rank {} of {}", place.rank, place.size);
}

Meeting meet(const LaunchEnvironment& place, milliseconds timeout) {
  // More than it takes where somebody answers.
  const milliseconds longest = timeout + std::chrono::seconds(10);
  std::optional<Meeting> meeting = call_within(
      "rendezvous", longest, [place, timeout] { return Rendezvous(place, timeout).meet(); });
  TP_CHECK(meeting, describe_place(place),
           "{} at {}:{} has stopped answering: the ranks did not meet within {}. Look whether it "
           "and its host are still there, and at the network, and start the job again.",
           place.launcher_hosts_store ? "the launcher" : "rank 0", place.master_address,
           place.master_port, seconds_of(longest));
  return std::move(*meeting);
}

}  // namespace tensorpack::detail
