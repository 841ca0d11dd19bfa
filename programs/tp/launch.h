// SPDX-License-Identifier: Apache-2.0
// `tp launch`: starts a program as several ranks that train together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tensorpack {

struct Host {
  std::string name;
  /// How many ranks it takes.
  int slots = 1;
};

struct LaunchOptions {
  /// 0 stands for as many as the hosts have slots.
  int ranks = 0;
  std::vector<Host> hosts;
  int max_restarts = 0;
  /// With fewer ranks the job is given up; 0 stands for all of them.
  int min_ranks = 0;
  /// What runs a command, which is its last word, on another host.
  std::string remote_shell = "ssh -o BatchMode=yes {host}";
  std::string master_address;
  /// Variables for every rank, NAME=VALUE, or NAME for the value it has here.
  std::vector<std::string> exports;
  /// What a collective may take, in seconds; 0 leaves it to the program.
  double timeout = 0;
  /// How long the other ranks may take to end after one has failed or a signal came.
  double grace = 30;
  /// How long a host may take to come back.
  double host_timeout = 60;
  std::vector<std::string> command;
};

/// "a:4,b" -> a with 4 slots, b with one.
std::vector<Host> parse_hosts(const std::string& text);

/// Runs the job to its end, with restarts, and returns the exit status: that of the first rank that
/// failed, as a shell has it.
int launch(LaunchOptions options);

/// Adds the subcommand; `status` gets the exit status.
void add_launch(CLI::App& app, int& status);

}  // namespace tensorpack
