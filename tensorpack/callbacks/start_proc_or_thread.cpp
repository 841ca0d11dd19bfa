// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/start_proc_or_thread.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr std::chrono::seconds kPatience(5);

// Waits for a while until `is_done`.
template <typename Condition>
bool wait_until(const Condition& is_done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!is_done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

StartProcOrThread::StartProcOrThread(StartProcOrThreadOptions options, std::string name, Body body)
    : name_(std::move(name)), body_(std::move(body)), options_(options) {
  TP_CHECK(body_ != nullptr, "StartProcOrThread", "the function is empty. Pass one to run.");
  set_chief_only(false);
}

StartProcOrThread::StartProcOrThread(std::string command, StartProcOrThreadOptions options)
    : name_(std::move(command)), options_(options) {
  TP_CHECK(!name_.empty(), "StartProcOrThread", "the command is empty. Pass one to run.");
  set_chief_only(false);
}

StartProcOrThread::StartProcOrThread(StartProcOrThread&& other) noexcept
    : Callback(std::move(other)),
      name_(std::move(other.name_)),
      body_(std::move(other.body_)),
      options_(other.options_),
      thread_(std::move(other.thread_)),
      process_(std::exchange(other.process_, 0)) {}

StartProcOrThread::~StartProcOrThread() { stop_process(); }

void StartProcOrThread::before_train() {
  if (body_) {
    thread_ = StoppableThread(name_, body_);
  } else {
    start_process();
  }
}

// In a process group of its own: Ctrl-C is for the training, which ends the process in its turn.
void StartProcOrThread::start_process() {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::string shell = "sh", option = "-c";
  char* arguments[] = {shell.data(), option.data(), name_.data(), nullptr};
  const int status = posix_spawn(&process_, "/bin/sh", nullptr, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  if (status != 0) process_ = 0;
  TP_CHECK(status == 0, "StartProcOrThread", "'{}' cannot be started: {}.", name_,
           std::strerror(status));
}

bool StartProcOrThread::has_ended() {
  int status = 0;
  if (process_ == 0 || waitpid(process_, &status, WNOHANG) != process_) return process_ == 0;
  process_ = 0;
  const bool is_by_us =
      WIFSIGNALED(status) && (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGKILL);
  if (status != 0 && !is_by_us) {
    logging::error("[StartProcOrThread] '{}' ended with status {}.", name_,
                   WIFEXITED(status) ? WEXITSTATUS(status) : status);
  }
  return true;
}

void StartProcOrThread::trigger_step() {
  if (body_) {
    thread_.rethrow_if_failed();
  } else if (process_ != 0) {
    has_ended();
  }
}

void StartProcOrThread::stop_process() {
  if (process_ == 0 || has_ended()) return;
  kill(-process_, SIGTERM);
  if (wait_until([this] { return has_ended(); })) return;
  logging::error("[StartProcOrThread] '{}' does not end on SIGTERM: it is killed.", name_);
  kill(-process_, SIGKILL);
  wait_until([this] { return has_ended(); });
}

void StartProcOrThread::after_train() {
  if (!options_.stop_at_last) {
    process_ = 0;
    if (thread_.joinable()) thread_.rethrow_if_failed();
    return;
  }
  stop_process();
  if (!thread_.joinable()) return;
  thread_.request_stop();
  if (!wait_until([this] { return thread_.finished(); })) {
    logging::error(
        "[StartProcOrThread] the thread '{}' was asked to stop and has not: it is waited for.",
        name_);
  }
  thread_.join();
  const StoppableThread ended = std::move(thread_);
  thread_ = {};
  ended.rethrow_if_failed();
}

}  // namespace tensorpack
