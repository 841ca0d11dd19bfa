// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inject_shell.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <iostream>
#include <sstream>
#include <utility>

#include "tensorpack/callbacks/hyper_param.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHelp =
    "print <variable or scalar> | set <variable> <value> | save | stop | go";

std::atomic<bool> signal_came = false;
struct sigaction handler_before = {};  // NOLINT: as the system has it
int handled_signal = 0;

void note_signal(int) { signal_came = true; }

void watch_signal(int signal) {
  if (signal == 0 || handled_signal != 0) return;
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, &handler_before);
  handled_signal = signal;
}

void forget_signal() {
  if (handled_signal != 0) sigaction(std::exchange(handled_signal, 0), &handler_before, nullptr);
  signal_came = false;
}

}  // namespace

InjectShell::InjectShell(InjectShellOptions options) : options_(std::move(options)) {
  TP_CHECK(!options_.file.empty(), "InjectShell", "the file's name is empty. Give it one.");
}

void InjectShell::setup_graph() {
  saver_.reset();
  const auto dir = get_logger_dir();
  path_ = dir ? *dir / options_.file : options_.file.is_absolute() ? options_.file : fs::path();
  if (!dir) return;
  saver_.emplace(ModelSaverOptions{.max_to_keep = 0, .checkpoint_dir = *dir});
  saver_->attach(trainer());
  saver_->setup_graph();
}

void InjectShell::before_train() {
  if (saver_) saver_->before_train();
  watch_signal(options_.signal);
}

void InjectShell::before_epoch() {
  if (saver_) saver_->before_epoch();
}

void InjectShell::after_epoch() {
  if (saver_) saver_->after_epoch();
}

void InjectShell::trigger_step() {
  if (!signal_came && since_look_.seconds() < 1) return;
  look();
}

void InjectShell::trigger_epoch() { look(); }

void InjectShell::look() {
  since_look_.reset();
  std::error_code ignored;
  const bool is_signalled = signal_came.exchange(false);
  const bool has_file = !path_.empty() && fs::exists(path_, ignored);
  if (!is_signalled && !has_file) return;
  std::string commands;
  if (has_file) {
    commands = read_file(path_);
    fs::remove(path_, ignored);
  }
  if (!commands.empty()) {
    std::istringstream lines(commands);
    talk(lines, /*is_interactive=*/false);
  } else if (isatty(STDIN_FILENO) == 0) {
    logging::warning("[InjectShell] there is no terminal. Write commands into '{}': {}.",
                     path_.string(), kHelp);
  } else {
    talk(std::cin, /*is_interactive=*/true);
    std::cin.clear();
  }
}

void InjectShell::talk(std::istream& commands, bool is_interactive) {
  logging::info("InjectShell at epoch {}, global_step {}. {}", epoch_num(), global_step(), kHelp);
  bool is_done = false;
  for (std::string line; !is_done;) {
    if (is_interactive) std::cout << "tensorpack> " << std::flush;
    if (!std::getline(commands, line)) break;
    try {
      const std::string answer = obey(line, is_done);
      if (!answer.empty()) logging::info("{}", answer);
    } catch (const Error& error) {
      logging::error("{}", error.what());
    }
  }
}

std::string InjectShell::obey(const std::string& line, bool& is_done) {
  std::istringstream words(line);
  std::string command, name, value;
  words >> command >> name >> value;
  if (command.empty()) return "";
  if (command == "print") return print(name);
  if (command == "set") return set(name, value);
  if (command == "save") return save();
  if (command == "stop") throw StopTraining("by hand, in InjectShell.");
  is_done = command == "go";
  return is_done ? "" : fmt::format("'{}' is no command: {}", command, kHelp);
}

std::string InjectShell::print(const std::string& name) const {
  if (trainer().monitors().contains(name)) {
    return fmt::format("{}: {:.5g}", name, trainer().monitors().get_latest(name));
  }
  std::ostringstream text;
  const Variable& variable = graph().variables().at(name);
  const auto lock = graph().lock_variables();
  text << name << ":\n" << variable.tensor;
  return text.str();
}

std::string InjectShell::set(const std::string& name, const std::string& value) const {
  GraphVarParam param(name);
  param.setup(graph());
  const std::optional<double> number = parse_number(value);
  TP_CHECK(number && std::isfinite(*number), "InjectShell", "'{}' is no number.", value);
  const double before = param.get_value();
  param.set_value(*number);
  return fmt::format("{} changes from {:.6g} to {:.6g}.", name, before, *number);
}

std::string InjectShell::save() {
  TP_CHECK(saver_.has_value(), "InjectShell",
           "there is no log directory to save to. Call set_logger_dir() before training.");
  saver_->on_terminate();
  return "";
}

void InjectShell::after_train() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove(path_, ignored);
  forget_signal();
  if (saver_) saver_->after_train();
}

}  // namespace tensorpack
