// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

/// Calls a function at the `call`-th call of one of its methods, 0 being the first.
class ActAt final : public Callback {
 public:
  ActAt(std::string method, int call, std::function<void()> action)
      : method_(std::move(method)), calls_left_(call), action_(std::move(action)) {}

  void setup_graph() override { act("setup_graph"); }
  void before_train() override { act("before_train"); }
  void before_epoch() override { act("before_epoch"); }
  RunArgs before_run(RunContext&) override { return act("before_run"), RunArgs{}; }
  void after_run(RunContext&, const FetchedValues&) override { act("after_run"); }
  void trigger_step() override { act("trigger_step"); }
  void after_epoch() override { act("after_epoch"); }
  void trigger_epoch() override { act("trigger_epoch"); }
  void after_train() override { act("after_train"); }

 private:
  void act(const std::string& method) {
    if (method == method_ && calls_left_-- == 0) action_();
  }

  std::string method_;
  int calls_left_;
  std::function<void()> action_;
};

}  // namespace tensorpack
