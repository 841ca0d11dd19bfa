// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/stop_flag.h"

#include <utility>

namespace tensorpack {
namespace {

thread_local const std::atomic<bool>* flag_of_thread = nullptr;

}  // namespace

bool stop_requested() {
  return flag_of_thread != nullptr && flag_of_thread->load(std::memory_order_relaxed);
}

StopScope::StopScope(const std::atomic<bool>& flag)
    : outer_(std::exchange(flag_of_thread, &flag)) {}

StopScope::~StopScope() { flag_of_thread = outer_; }

}  // namespace tensorpack
