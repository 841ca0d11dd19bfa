// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <concepts>
#include <functional>
#include <stop_token>
#include <string>
#include <utility>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {

struct StartProcOrThreadOptions {
  /// Whether it ends with the training. Otherwise a process goes on, also when the program has
  /// ended; a thread goes on until it returns, or is asked to stop where the trainer is destroyed.
  bool stop_at_last = true;
};

/// Runs something beside the training, from before_train() to after_train(): a thread,
///
///   StartProcOrThread("simulator", [](std::stop_token stop) { while (!stop.stop_requested()) ...
///   })
///
/// or a process, by a command of the shell: StartProcOrThread("nvidia-smi dmon > usage.log").
///
/// At the end the thread is asked to stop and waited for; a process gets SIGTERM, and SIGKILL when
/// it is still there five seconds later. What a thread throws ends the training with the next step;
/// a process that ends with a status that is not 0 is an error in the log.
class StartProcOrThread final : public Callback {
 public:
  using Body = std::function<void(std::stop_token)>;
  /// A template, because clang 14 does not compile `{.stop_at_last = ...}` where an overload takes
  /// a std::function.
  template <std::convertible_to<Body> F>
  StartProcOrThread(std::string name, F body, StartProcOrThreadOptions options = {})
      : StartProcOrThread(options, std::move(name), Body(std::move(body))) {}
  explicit StartProcOrThread(std::string command, StartProcOrThreadOptions options = {});
  ~StartProcOrThread() override;
  StartProcOrThread(StartProcOrThread&& other) noexcept;
  StartProcOrThread& operator=(StartProcOrThread&&) = delete;

  void before_train() override;
  void trigger_step() override;
  void after_train() override;

 private:
  StartProcOrThread(StartProcOrThreadOptions options, std::string name, Body body);
  void start_process();
  void stop_process();
  bool has_ended();  // the process

  std::string name_;  // of the thread, or the command
  Body body_;         // empty for a process
  StartProcOrThreadOptions options_;
  StoppableThread thread_;
  pid_t process_ = 0;  // 0: none
};

}  // namespace tensorpack
