// SPDX-License-Identifier: Apache-2.0
// One rank of a job, for tests that start processes:
//
//   distributed_worker basic             does every collective once and checks the result
//   distributed_worker groups            does so in several groups, one after another and at once
//   distributed_worker left              is alone in a group when the store of an earlier one hangs
//   distributed_worker loop steps=5 [rank=1 at=3 act=die|exit|hang|stop|leave|elsewhere]
//
// sums in a loop, and has one rank misbehave in a step of the job's first attempt. `timeout=` is in
// seconds. Errors are printed, and end it with status 3.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensorpack/distributed/process_group.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using Arguments = std::map<std::string, std::string>;

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void do_everything_once(ProcessGroup& group, c10::Device device) {
  const at::Tensor sum = at::full({1000}, group.rank() + 1.0, device);
  group.all_reduce(sum)->wait();
  const double expected = group.size() * (group.size() + 1) / 2.0;
  TP_CHECK(at::equal(sum, at::full({1000}, expected, device)), "worker", "wrong sum: {}",
           sum[0].item<double>());
  const at::Tensor values = at::full({3}, group.rank(), device);
  group.broadcast(values, group.size() - 1);
  TP_CHECK(values[0].item<int>() == group.size() - 1, "worker", "wrong broadcast");
  const auto texts = group.all_gather(std::string(static_cast<size_t>(group.rank()), 'x'));
  TP_CHECK(texts.back().size() + 1 == texts.size(), "worker", "wrong gather");
  group.barrier();
}

void misbehave(ProcessGroup& group, const std::string& act) {
  say(fmt::format("rank {} will {}", group.rank(), act));
  if (act == "die") std::raise(SIGKILL);
  if (act == "exit") std::exit(5);  // with the group still there
  if (act == "stop") std::raise(SIGSTOP);
  if (act == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (act == "leave") group.leave("out of luck.");
  if (act == "elsewhere") group.broadcast(at::zeros({3}), 0);
}

void loop(ProcessGroup& group, const Arguments& arguments) {
  const auto value = [&](const std::string& name, const std::string& otherwise) {
    return arguments.count(name) != 0 ? arguments.at(name) : otherwise;
  };
  const int steps = std::stoi(value("steps", "1000000"));
  const bool bad =
      std::stoi(value("rank", "-1")) == group.rank() && group.environment().attempt == 0;
  const int at = std::stoi(value("at", "-1"));
  const at::Tensor tensor = at::ones({1 << 16});
  for (int step = 0; step < steps; ++step) {
    group.set_step(step);
    if (bad && step == at) misbehave(group, value("act", ""));
    group.all_reduce(tensor.clone())->wait();
    if (step == 0) say(fmt::format("rank {} pid {} has begun", group.rank(), getpid()));
    // Long enough for signs of life between the steps, and for a test to act.
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoi(value("pause", "100"))));
  }
}

// As programs do that train several times.
void use_several_groups(const ProcessGroupOptions& options) {
  const auto threads_of_process = [] {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return std::distance(begin(tasks), end(tasks));
  };
  std::ptrdiff_t threads_at_first = 0;
  for (int i = 0; i < 4; ++i) {
    const auto group = ProcessGroup::create(options);
    do_everything_once(*group, options.device);
    if (i == 0) threads_at_first = threads_of_process();
    TP_CHECK(threads_of_process() <= threads_at_first + 1, "worker",
             "group {} has left {} threads behind", i, threads_of_process() - threads_at_first);
    group->leave("its training has ended.");
  }
  std::vector<std::shared_ptr<ProcessGroup>> groups;
  for (int i = 0; i < 3; ++i) groups.push_back(ProcessGroup::create(options));
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups.size(); ++i) {
    threads.emplace_back([&group = *groups[i], &options, times = 20 * (i + 1)] {
      for (size_t k = 0; k < times; ++k) do_everything_once(group, options.device);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Rank 0, which hosts the store of the group that both leave, answers no more, as behind a cable
// that was pulled.
void go_on_without_the_store(const ProcessGroupOptions& options) {
  {
    const auto group = ProcessGroup::create(options);
    do_everything_once(*group, options.device);
    group->leave("its training has ended.");
    if (group->rank() == 0) std::raise(SIGSTOP);
  }
  alarm(20);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const auto alone = ProcessGroup::create({.environment = {}, .backend = CollectiveBackend::kGloo});
  do_everything_once(*alone, options.device);
  say("rank 1 went on alone");
}

int run(const std::string& mode, const Arguments& arguments) {
  ProcessGroupOptions options;
  if (arguments.count("timeout") != 0) {
    options.timeout =
        std::chrono::milliseconds(static_cast<int64_t>(1000 * std::stod(arguments.at("timeout"))));
  }
  if (arguments.count("device") != 0) {
    options.device = c10::Device(arguments.at("device"));
    const int index = options.environment.local_rank;
    options.device.set_index(static_cast<c10::DeviceIndex>(index));
  }
  if (mode == "groups") use_several_groups(options);
  if (mode == "left") {
    go_on_without_the_store(options);
    return 0;
  }
  say(fmt::format("rank {} comes", options.environment.rank));
  const auto group = ProcessGroup::create(options);
  do_everything_once(*group, options.device);
  if (mode == "loop") loop(*group, arguments);
  const LaunchEnvironment& place = group->environment();
  say(fmt::format("rank {} of {} is done (local {} of {}, attempt {}, by {})", place.rank,
                  place.size, place.local_rank, place.local_size, place.attempt, place.launcher));
  return 0;
}

}  // namespace
}  // namespace tensorpack

int main(int argc, char** argv) {
  tensorpack::Arguments arguments;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    arguments[word.substr(0, equals)] = word.substr(equals + 1);
  }
  try {
    return tensorpack::run(argc > 1 ? argv[1] : "basic", arguments);
  } catch (const std::exception& error) {
    tensorpack::say(std::string("error: ") + error.what());
    return 3;
  }
}
