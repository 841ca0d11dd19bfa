// SPDX-License-Identifier: Apache-2.0
// Threads that do their parts of a job again and again.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tensorpack {

/// A fixed number of threads, of which the caller's is the first. Each has a number and does the
/// part of that number, so that what belongs to a part stays on one thread.
class WorkerTeam {
 public:
  /// For jobs of `size` parts. `on_start` is called on each thread but the caller's first. Throws
  /// an Error if there cannot be so many threads.
  WorkerTeam(const std::string& name, size_t size, std::function<void()> on_start = {});
  ~WorkerTeam();
  WorkerTeam(const WorkerTeam&) = delete;
  WorkerTeam& operator=(const WorkerTeam&) = delete;

  struct Failure {
    size_t worker = 0;
    std::exception_ptr exception = {};
  };

  /// Calls `part(i)` on thread i, for all of them at once, part 0 on this one, and waits for all.
  /// Returns the first failure; `on_failure(i)` is called when it happens, on its thread, while
  /// others may still work.
  std::optional<Failure> run(const std::function<void(size_t)>& part,
                             const std::function<void(size_t)>& on_failure = {});

 private:
  void work(size_t index, const std::function<void()>& on_start);
  void stop();
  void do_part(size_t index);

  // What is being done; written before `job_` changes and read after.
  const std::function<void(size_t)>* part_ = nullptr;
  const std::function<void(size_t)>* on_failure_ = nullptr;
  std::optional<Failure> failure_;
  std::atomic<bool> has_failed_ = false;

  std::atomic<uint32_t> job_ = 0;      // counts jobs: a change is what the threads wait for
  std::atomic<uint32_t> working_ = 0;  // threads that have not done their part
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> threads_;  // last: they use the others
};

}  // namespace tensorpack
