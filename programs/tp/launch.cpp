// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/launch.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "programs/tp/job.h"
#include "programs/tp/shell.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

namespace {

using Clock = std::chrono::steady_clock;

template <typename... Args>
void say(fmt::format_string<Args...> text, Args&&... args) {
  fmt::print(stderr, "tp launch: {}\n", fmt::format(text, std::forward<Args>(args)...));
}

std::chrono::milliseconds from_seconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(1000 * seconds));
}

std::string own_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

bool is_here(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == own_name();
}

/// A port that nobody has here at the moment, or, for another host, one that is most likely free.
int pick_port(bool here) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool found =
      here && fd >= 0 && bind(fd, any, size) == 0 && getsockname(fd, any, &size) == 0;
  if (fd >= 0) close(fd);
  if (found) return ntohs(address.sin_port);
  std::random_device random;
  return std::uniform_int_distribution<int>(20000, 31999)(random);
}

/// Runs the words on another host, where no signal of this side comes, and where nobody would end
/// them when this side is killed. A watch, which is there before them, sends the signals whose
/// numbers it reads from the input, and ends them as soon as the input ends. The shell itself waits
/// for their end.
std::string remote_script(const RankCommand& command) {
  std::string program = "cd " + shell_word(std::filesystem::current_path().string());
  for (const auto& [name, value] : command.variables) {
    program += " && export " + name + "=" + shell_word(value);
  }
  program += " &&";
  for (const std::string& word : command.words) program += " " + shell_word(word);
  const std::string script =
      "trap : INT TERM HUP USR1 USR2 XCPU; exec 3<&0; "
      "( trap '' INT TERM HUP USR1 USR2 XCPU; while read signal <&3; do kill -$signal 0; done; "
      "kill -TERM 0; sleep 5; kill -KILL 0 ) > /dev/null 2>&1 & "
      "watch=$!; { " +
      program + "; } < /dev/null 3<&-; status=$?; kill -KILL $watch 2> /dev/null; exit $status";
  return "exec sh -c " + shell_word(script);  // a user's own shell may be another
}

std::vector<std::string> remote_words(const std::string& remote_shell, const std::string& host) {
  std::vector<std::string> words;
  std::istringstream in(remote_shell);
  for (std::string word; in >> word;) {
    const size_t at = word.find("{host}");
    if (at != std::string::npos) word.replace(at, 6, host);
    words.push_back(word);
  }
  return words;
}

int count_slots(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0,
                         [](int sum, const Host& host) { return sum + host.slots; });
}

void check_options(LaunchOptions& options) {
  constexpr const char* kWhere = "tp launch";
  if (options.hosts.empty()) options.hosts = {{"localhost", std::max(options.ranks, 1)}};
  const int slots = count_slots(options.hosts);
  if (options.ranks == 0) options.ranks = slots;
  TP_CHECK(options.ranks >= 1 && options.ranks <= slots, kWhere,
           "{} ranks do not fit on hosts with {}. Name more: -H {}:{}.", options.ranks,
           counted(slots, "slot"), options.hosts.front().name, options.ranks);
  if (options.min_ranks == 0) options.min_ranks = options.ranks;
  TP_CHECK(options.min_ranks >= 1 && options.min_ranks <= options.ranks, kWhere,
           "--min-ranks {} must be between 1 and the number of ranks, {}.", options.min_ranks,
           options.ranks);
  TP_CHECK(!options.command.empty(), kWhere, "which program? Write it after `--`.");
}

class Launcher {
 public:
  explicit Launcher(LaunchOptions options) : options_(std::move(options)) {}

  int run() {
    for (int attempt = 0;; ++attempt) {
      const int status = run_attempt(attempt, options_.ranks);
      if (status == 0 || interrupted_) return status;
      if (attempt >= options_.max_restarts) {
        if (options_.max_restarts > 0) {
          say("given up after {}.", counted(options_.max_restarts, "restart"));
        }
        return status;
      }
      if (!gather_hosts()) return status;
    }
  }

 private:
  int run_attempt(int attempt, int wanted) {
    const int ranks = std::min(wanted, count_slots(hosts_));
    if (attempt > 0) {
      say("starting {} again, attempt {} of {}.", counted(ranks, "rank"), attempt + 1,
          options_.max_restarts + 1);
    }
    if (ranks < wanted) {
      say("going on with {2} instead of {1}: the total batch is {0}/{1} of what it was, and "
          "each rank takes one part in {0} of the data.",
          ranks, wanted, counted(ranks, "rank"));
    }
    const JobEnd end = run_job(commands(ranks, attempt), signals_, from_seconds(options_.grace));
    interrupted_ = end.signal != 0;
    return end.status != 0 || !interrupted_ ? end.status : 128 + end.signal;
  }

  std::vector<RankCommand> commands(int ranks, int attempt) const {
    const bool all_here = std::all_of(hosts_.begin(), hosts_.end(),
                                      [](const Host& host) { return is_here(host.name); });
    const std::string& first = hosts_.front().name;
    std::string address = options_.master_address;
    if (address.empty()) address = all_here ? "127.0.0.1" : is_here(first) ? own_name() : first;
    const std::string port = std::to_string(pick_port(is_here(first)));

    std::vector<RankCommand> commands;
    for (const Host& host : hosts_) {
      const int left = ranks - static_cast<int>(commands.size());
      const int local_size = std::min(host.slots, left);
      for (int local_rank = 0; local_rank < local_size; ++local_rank) {
        RankCommand command{.rank = static_cast<int>(commands.size()),
                            .words = options_.command,
                            .variables = {{"TENSORPACK_RANK", std::to_string(commands.size())},
                                          {"TENSORPACK_SIZE", std::to_string(ranks)},
                                          {"TENSORPACK_LOCAL_RANK", std::to_string(local_rank)},
                                          {"TENSORPACK_LOCAL_SIZE", std::to_string(local_size)},
                                          {"TENSORPACK_MASTER_ADDRESS", address},
                                          {"TENSORPACK_MASTER_PORT", port},
                                          {"TENSORPACK_ATTEMPT", std::to_string(attempt)}}};
        add_exports(command.variables);
        if (options_.timeout > 0) {
          command.variables["TENSORPACK_TIMEOUT"] = fmt::format("{}", options_.timeout);
        }
        commands.push_back(is_here(host.name) ? here(command) : elsewhere(command, host.name));
      }
    }
    return commands;
  }

  void add_exports(std::map<std::string, std::string>& variables) const {
    for (const std::string& text : options_.exports) {
      const size_t equals = text.find('=');
      const std::string name = text.substr(0, equals);
      const char* own = std::getenv(name.c_str());
      if (equals != std::string::npos) {
        variables[name] = text.substr(equals + 1);
      } else if (own != nullptr) {
        variables[name] = own;
      }
    }
  }

  static RankCommand here(RankCommand command) {
    if (command.rank == 0) command.input = RankInput::kRelayed;
    return command;
  }

  RankCommand elsewhere(const RankCommand& command, const std::string& host) const {
    RankCommand remote{.rank = command.rank,
                       .words = remote_words(options_.remote_shell, host),
                       .variables = {},
                       .input = RankInput::kSignals};
    remote.words.push_back(remote_script(command));
    return remote;
  }

  bool answers(const Host& host) {
    if (is_here(host.name)) return true;
    RankCommand probe{.words = remote_words(options_.remote_shell, host.name), .variables = {}};
    probe.words.push_back("true");
    RankProcess process(probe);
    const auto until = Clock::now() + std::chrono::seconds(10);
    while (process.running() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      process.collect();
    }
    return process.status() == 0;
  }

  /// Finds the hosts to start again on; false when there are too few.
  bool gather_hosts() {
    const auto until = Clock::now() + from_seconds(options_.host_timeout);
    for (;;) {
      hosts_.clear();
      std::string missing;
      for (const Host& host : options_.hosts) {
        if (answers(host)) {
          hosts_.push_back(host);
        } else {
          missing += (missing.empty() ? "" : ", ") + host.name;
        }
      }
      if (missing.empty()) return true;
      for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
        if (signal != SIGCHLD && signal != SIGUSR1) return false;
      }
      if (Clock::now() >= until) {
        say("no answer from {} for {} s.", missing, options_.host_timeout);
        const bool enough = count_slots(hosts_) >= options_.min_ranks;
        if (!enough) {
          say("the hosts that are left have {}, and --min-ranks is {}.",
              counted(count_slots(hosts_), "slot"), options_.min_ranks);
        }
        return enough;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

  const LaunchOptions options_;
  std::vector<Host> hosts_ = options_.hosts;  // those that are there
  SignalReader signals_;
  bool interrupted_ = false;
};

}  // namespace

std::vector<Host> parse_hosts(const std::string& text) {
  std::vector<Host> hosts;
  std::istringstream in(text);
  for (std::string item; std::getline(in, item, ',');) {
    const size_t colon = item.rfind(':');
    Host host{.name = item.substr(0, colon)};
    if (colon != std::string::npos) {
      const std::string slots = item.substr(colon + 1);
      const bool digits = !slots.empty() && slots.size() < 6 &&
                          slots.find_first_not_of("0123456789") == std::string::npos;
      host.slots = digits ? std::stoi(slots) : 0;
    }
    TP_CHECK(!host.name.empty() && host.slots >= 1, "tp launch",
             "'{}' is not a host. Write name:slots, as in -H one:4,two:4.", item);
    hosts.push_back(host);
  }
  return hosts;
}

int launch(LaunchOptions options) {
  check_options(options);
  std::signal(SIGPIPE, SIG_IGN);  // a rank need not read what it is given
  return Launcher(std::move(options)).run();
}

void add_launch(CLI::App& app, int& status) {
  struct Words {
    LaunchOptions options;
    std::string hosts;
  };
  const auto words = std::make_shared<Words>();
  LaunchOptions& options = words->options;
  CLI::App* command = app.add_subcommand(
      "launch", "Start a program as several ranks that train together: tp launch -n 4 -- program");
  command->add_option("-n,--ranks", options.ranks,
                      "How many; as many as there are slots if left out");
  command->add_option("-H,--hosts", words->hosts,
                      "Where: host:slots,host:slots; this host if left out");
  command->add_option("--max-restarts", options.max_restarts,
                      "How often to start all ranks again after one has failed");
  command->add_option("--min-ranks", options.min_ranks,
                      "Go on with so few when a host does not come back");
  command->add_option("--timeout", options.timeout,
                      "Seconds that ranks wait for each other (TENSORPACK_TIMEOUT)");
  command->add_option("--grace", options.grace,
                      "Seconds that ranks have to end after another has failed or a signal came");
  command->add_option("--host-timeout", options.host_timeout,
                      "Seconds that a host has to come back before a restart");
  command
      ->add_option("-x,--export", options.exports, "A variable for every rank: NAME or NAME=VALUE")
      ->allow_extra_args(false);
  command->add_option("--rsh", options.remote_shell,
                      "What runs a shell command, its last word, on {host}");
  command->add_option("--master-address", options.master_address,
                      "Where the others reach rank 0; the name of its host if left out");
  command->add_option("command", options.command, "The program and its arguments, after --")
      ->required();
  command->footer(
      "Example:\n"
      "  tp launch -n 4 -- ./train --epochs 10\n"
      "  tp launch -H one:4,two:4 --max-restarts 3 -- ./train --resume");
  command->callback([words, &status] {
    try {
      if (!words->hosts.empty()) words->options.hosts = parse_hosts(words->hosts);
      status = launch(words->options);
    } catch (const Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      status = 2;
    }
  });
}

}  // namespace tensorpack
