// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/serve.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <iostream>
#include <string>

#include "benchmarks/gpu/answers.h"
#include "benchmarks/gpu/profile.h"
#include "benchmarks/gpu/training.h"
#include "tensorpack/session/device_memory.h"
#include "tensorpack/utils/startup.h"
#include "tensorpack/utils/timer.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack::bench {
namespace {

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(GpuTraining& training, int64_t steps, torch::Device device) {
  const Timer timer;
  for (int64_t i = 0; i < steps; ++i) training.step();
  synchronize(device);
  return timer.seconds();
}

double cpu_seconds_of(GpuTraining& training, int64_t steps, torch::Device device) {
  synchronize(device);
  const double start = thread_cpu_seconds();
  for (int64_t i = 0; i < steps; ++i) training.step();
  const double taken = thread_cpu_seconds() - start;
  synchronize(device);
  return taken;
}

// Bytes of the device that were in use at a time.
struct Memory {
  double since_the_start = 0;
  double of_later_steps = 0;  // the first aside, which records and verifies
};

double peak_memory(torch::Device device) {
  return static_cast<double>(device_memory(device).peak_allocated);
}

double reply(const std::string& request, GpuTraining& training, const Memory& memory,
             torch::Device device) {
  constexpr std::string_view kCpu = "cpu ";
  constexpr std::string_view kProfile = "profile ";
  if (request == "memory") return std::max(memory.since_the_start, peak_memory(device));
  if (request == "step_memory") return memory.of_later_steps;
  if (request == "held") return static_cast<double>(device_memory(device).held);
  if (request.starts_with(kCpu)) {
    return cpu_seconds_of(training, std::stoll(request.substr(kCpu.size())), device);
  }
  if (request.starts_with(kProfile)) {
    write_trace(request.substr(kProfile.size()),
                [&] { seconds_of(training, kProfiledSteps, device); });
    return 0;
  }
  return seconds_of(training, std::stoll(request), device);
}

}  // namespace

void serve_gpu_task(const GpuTask& task, c10::Device device) {
  Answers answers;
  tune_process();
  torch::zeros({1}, device);  // creating the context is no part of the first step
  const Timer timer;
  GpuTraining training(task, device);
  seconds_of(training, 1, device);
  const double first_step = timer.seconds();
  // A captured step runs in memory that the allocator has back: what it takes is seen while it is
  // captured, which the second step does.
  Memory memory{.since_the_start = peak_memory(device)};
  reset_peak_device_memory();
  seconds_of(training, task.tiny ? 2 : 5, device);
  memory.of_later_steps = peak_memory(device);
  answers.write(fmt::format(R"(ready {{"parameters": {}, "first_step": {}}})",
                            training.parameters(), first_step));
  for (std::string request; std::getline(std::cin, request);) {
    answers.write(fmt::format("{}", reply(request, training, memory, device)));
  }
}

}  // namespace tensorpack::bench
