// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/worker_team.h"

#include "tensorpack/utils/spin_wait.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {

WorkerTeam::WorkerTeam(const std::string& name, size_t size, std::function<void()> on_start) {
  try {
    for (size_t i = 1; i < size; ++i) {
      threads_.push_back(
          start_thread(name + std::to_string(i), [this, i, on_start] { work(i, on_start); }));
    }
  } catch (...) {
    stop();
    throw;
  }
}

WorkerTeam::~WorkerTeam() { stop(); }

void WorkerTeam::stop() {
  stopping_ = true;
  ++job_;
  job_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerTeam::work(size_t index, const std::function<void()>& on_start) {
  if (on_start) on_start();
  for (uint32_t done = 0;; ++done) {
    spin_wait(job_, done);
    if (stopping_) return;
    do_part(index);
    if (--working_ == 0) working_.notify_one();
  }
}

void WorkerTeam::do_part(size_t index) {
  try {
    (*part_)(index);
  } catch (...) {
    if (has_failed_.exchange(true)) return;
    failure_ = Failure{index, std::current_exception()};
    if (*on_failure_) (*on_failure_)(index);
  }
}

std::optional<WorkerTeam::Failure> WorkerTeam::run(const std::function<void(size_t)>& part,
                                                   const std::function<void(size_t)>& on_failure) {
  part_ = &part;
  on_failure_ = &on_failure;
  failure_.reset();
  has_failed_ = false;
  working_ = static_cast<uint32_t>(threads_.size());
  ++job_;
  job_.notify_all();
  do_part(0);
  for (uint32_t left = working_; left != 0; left = working_) spin_wait(working_, left);
  return failure_;
}

}  // namespace tensorpack
