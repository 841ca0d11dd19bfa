// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/thread.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

void set_thread_name(const std::string& name) {
  // Longer names are refused, not cut.
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

int affinity_cores() {
  cpu_set_t cores;
  // Fails on machines with more cores than the set has bits.
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

namespace {

// What `start` gives, or an error that says what to do if the system has no more threads.
template <typename Start>
auto started(const std::string& name, const Start& start) {
  try {
    return start();
  } catch (const std::system_error& error) {
    throw make_error(
        "thread '" + name + "'",
        "it cannot be started: {}. Use fewer threads or processes, or raise the limits on threads "
        "(ulimit -u, pids.max of the container) and memory (ulimit -v).",
        error.what());
  }
}

}  // namespace

std::thread start_thread(const std::string& name, std::function<void()> body) {
  return started(name, [&] {
    return std::thread([name, body = std::move(body)] {
      set_thread_name(name);
      body();
    });
  });
}

struct StoppableThread::State {
  explicit State(std::string name) : name(std::move(name)) {}

  ~State() {
    if (!failure || delivered) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      logging::error("[thread '{}'] failed, and nobody asked: {}", name, e.what());
    } catch (...) {
      logging::error("[thread '{}'] failed, and nobody asked.", name);
    }
  }

  const std::string name;
  std::mutex mutex;  // guards what follows
  std::exception_ptr failure;
  bool delivered = false;
  bool finished = false;
};

StoppableThread::StoppableThread(std::string name, std::function<void(std::stop_token)> body)
    : state_(std::make_shared<State>(std::move(name))) {
  auto run = [state = state_, body = std::move(body)](std::stop_token stop) {
    set_thread_name(state->name);
    std::exception_ptr failure;
    try {
      body(std::move(stop));
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(state->mutex);
    state->failure = std::move(failure);
    state->finished = true;
  };
  thread_ = started(state_->name, [&] { return std::jthread(std::move(run)); });
}

void StoppableThread::join() {
  if (thread_.joinable()) thread_.join();
}

bool StoppableThread::finished() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->finished;
}

void StoppableThread::rethrow_if_failed() const {
  if (!state_) return;
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure) return;
  state_->delivered = true;
  std::rethrow_exception(state_->failure);
}

}  // namespace tensorpack
