// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

/// What to do when; each gets the callback, and through it the trainer. Any may be left out.
struct CallbackFunctions {
  using Function = std::function<void(Callback&)>;
  Function setup_graph = {};
  Function before_train = {};
  Function trigger = {};
  Function after_train = {};
};

/// A callback made of functions, for what is not worth a class:
///
///   CallbackFactory({.trigger = [](Callback& self) { logging::info("{}", self.epoch_num()); }})
class CallbackFactory final : public Callback {
 public:
  explicit CallbackFactory(CallbackFunctions functions) : functions_(std::move(functions)) {}

  void setup_graph() override { call(functions_.setup_graph); }
  void before_train() override { call(functions_.before_train); }
  void trigger() override { call(functions_.trigger); }
  void after_train() override { call(functions_.after_train); }

 private:
  void call(const CallbackFunctions::Function& function) {
    if (function) function(*this);
  }

  CallbackFunctions functions_;
};

}  // namespace tensorpack
