// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tensorpack/utils/thread.h"

namespace tensorpack::detail {

/// What `function` returns, or nothing if that takes longer than `patience`: libtorch waits without
/// a limit for a store whose host is cut off. Then the call is left to a thread of its own, so that
/// `function` should own what it uses.
template <typename Function>
auto call_within(const std::string& name, std::chrono::milliseconds patience, Function function)
    -> std::optional<decltype(function())> {
  const auto task =
      std::make_shared<std::packaged_task<decltype(function())()>>(std::move(function));
  auto result = task->get_future();
  std::thread thread = start_thread(name, [task] { (*task)(); });
  if (result.wait_for(patience) == std::future_status::timeout) {
    thread.detach();
    return std::nullopt;
  }
  thread.join();
  return result.get();
}

}  // namespace tensorpack::detail
