// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/send_monitor_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// Puts a text in place of every {name}.
std::string fill_in(const std::string& command,
                    const std::function<std::string(const std::string& name)>& text_of) {
  std::string text;
  size_t done = 0;
  for (size_t open = 0; (open = command.find('{', done)) != std::string::npos;) {
    const size_t close = command.find('}', open);
    if (close == std::string::npos) break;
    text.append(command, done, open - done);
    text += text_of(command.substr(open + 1, close - open - 1));
    done = close + 1;
  }
  return text.append(command, done);
}

}  // namespace

SendMonitorData::SendMonitorData(std::string command, std::vector<std::string> names)
    : command_(std::move(command)), names_(std::move(names)) {
  TP_CHECK(!command_.empty() && !names_.empty(), "SendMonitorData",
           "the command is '{}' for {}. Pass a command and at least one name.", command_,
           counted(std::ssize(names_), "name"));
  fill_in(command_, [this](const std::string& name) {
    TP_CHECK(std::find(names_.begin(), names_.end(), name) != names_.end(), "SendMonitorData",
             "'{{{}}}' in the command is not one of the names. {}", name,
             did_you_mean(name, names_));
    return name;
  });
}

void SendMonitorData::process_scalar(const std::string& name, double value, const LoopState&) {
  if (std::find(names_.begin(), names_.end(), name) != names_.end()) unsent_[name] = value;
}

void SendMonitorData::send_if_complete() {
  if (unsent_.size() < names_.size()) return;
  const auto values = std::exchange(unsent_, {});
  const std::string command = fill_in(
      command_, [&](const std::string& name) { return fmt::format("{}", values.at(name)); });
  const int status = std::system(command.c_str());
  if (status != 0) {
    logging::error("[SendMonitorData] the command '{}' failed with status {}.", command, status);
  }
}

}  // namespace tensorpack
