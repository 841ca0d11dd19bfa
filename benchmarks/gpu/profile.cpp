// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/profile.h"

#include <fmt/core.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace tensorpack::bench {
namespace {

struct Kernel {
  std::string name = {};
  double microseconds = 0;
  int launches = 0;
};

// Of equal names together, the longest first.
std::vector<Kernel> kernels_of(const std::filesystem::path& trace) {
  std::ifstream file(trace);
  const auto content = nlohmann::json::parse(file);
  std::map<std::string, Kernel> by_name;
  for (const auto& event : content.at("traceEvents")) {
    const std::string category = event.value("cat", "");
    if (category != "kernel" && category != "gpu_memcpy" && category != "gpu_memset") continue;
    Kernel& kernel = by_name[event.at("name")];
    kernel.name = event.at("name");
    kernel.microseconds += event.at("dur").get<double>();
    ++kernel.launches;
  }
  std::vector<Kernel> kernels;
  for (const auto& [name, kernel] : by_name) kernels.push_back(kernel);
  std::sort(kernels.begin(), kernels.end(),
            [](const Kernel& a, const Kernel& b) { return a.microseconds > b.microseconds; });
  return kernels;
}

std::string row(const Kernel& kernel) {
  return fmt::format("{:>10.1f} us {:>7.1f}  {}\n", kernel.microseconds / kProfiledSteps,
                     static_cast<double>(kernel.launches) / kProfiledSteps,
                     kernel.name.substr(0, 150));
}

}  // namespace

void write_trace(const std::filesystem::path& path, const std::function<void()>& work) {
  namespace profiler = torch::profiler::impl;
  const std::set<profiler::ActivityType> activities = {profiler::ActivityType::CUDA};
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, activities);
  torch::autograd::profiler::enableProfiler(config, activities);
  work();
  torch::autograd::profiler::disableProfiler()->save(path.string());
}

std::string kernel_table(const std::filesystem::path& trace, size_t rows) {
  const std::vector<Kernel> kernels = kernels_of(trace);
  Kernel all{.name = "all kernels and copies"};
  Kernel rest{.name = "the rest"};
  std::string table;
  for (size_t i = 0; i < kernels.size(); ++i) {
    for (Kernel* sum : {&all, i < rows ? nullptr : &rest}) {
      if (sum == nullptr) continue;
      sum->microseconds += kernels[i].microseconds;
      sum->launches += kernels[i].launches;
    }
    if (i < rows) table += row(kernels[i]);
  }
  return table + row(rest) + row(all);
}

}  // namespace tensorpack::bench
