// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tensorpack/monitors/monitor.h"

namespace tensorpack {

/// Runs a shell command with some scalars, once all of them have a new value:
///
///   SendMonitorData("curl -s https://example.org/?error={validation_error}", {"validation_error"})
///
/// `{name}` stands for the value. It is looked at after every step and epoch; training waits for
/// the command, so end it with "&" if it is slow. A command that fails is an error in the log, and
/// training goes on. Throws Error when the command has a name in braces that is not in the list.
class SendMonitorData final : public MonitorBase {
 public:
  SendMonitorData(std::string command, std::vector<std::string> names);

  void process_scalar(const std::string& name, double value, const LoopState& loop) override;
  void trigger_step(const LoopState&) override { send_if_complete(); }
  void trigger_epoch(const LoopState&) override { send_if_complete(); }

 private:
  void send_if_complete();

  std::string command_;
  std::vector<std::string> names_;
  std::map<std::string, double> unsent_;
};

}  // namespace tensorpack
