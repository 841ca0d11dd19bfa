// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

/// The calls of one or more EventRecorders, in the order they came.
using EventLog = std::shared_ptr<std::vector<std::string>>;

inline EventLog make_event_log() { return std::make_shared<std::vector<std::string>>(); }

/// Records every call with the state of the loop, "before_epoch 1/-1/0": epoch, local step, global
/// step. With a name, several recorders can share a log: "A before_epoch 1/-1/0".
class EventRecorder final : public Callback {
 public:
  explicit EventRecorder(EventLog log, std::string name = "")
      : log_(std::move(log)), name_(std::move(name)) {}

  void setup_graph() override { record("setup_graph"); }
  void before_train() override { record("before_train"); }
  void before_epoch() override { record("before_epoch"); }
  RunArgs before_run(RunContext&) override { return record("before_run"), RunArgs{}; }
  void after_run(RunContext&, const FetchedValues&) override { record("after_run"); }
  void trigger_step() override { record("trigger_step"); }
  void after_epoch() override { record("after_epoch"); }
  void trigger_epoch() override {
    record("trigger_epoch");
    trigger();
  }
  void trigger() override { record("trigger"); }
  void after_train() override { record("after_train"); }

 private:
  void record(const char* event) {
    log_->push_back(fmt::format("{}{}{} {}/{}/{}", name_, name_.empty() ? "" : " ", event,
                                epoch_num(), local_step(), global_step()));
  }

  EventLog log_;
  std::string name_;
};

}  // namespace tensorpack
