// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/task.h"

#include <algorithm>

#include "tensorpack/utils/env.h"

namespace tensorpack::bench {
namespace {

// Has a task train on images of ImageNet's size, in the way that is fast.
GpuTask imagenet_in_bf16(GpuTask task) {
  task.batch = 256;
  task.size = 224;
  task.precision = "bf16";
  task.channels_last = true;
  return task;
}

// The same models on so little data that a CPU is done at once.
GpuTask shrunk(GpuTask task) {
  task.tiny = true;
  task.batch = 2;
  if (task.model == "resnet50") task.size = 32;
  if (task.model == "vgg16") task.size = 32;
  if (task.model == "alexnet") task.size = 64;
  if (task.model == "gpt2") task.size = 16;
  return task;
}

}  // namespace

std::vector<GpuTask> gpu_tasks(bool tiny) {
  const std::vector<std::string> all = {"eager", "cuda_graph", "compile",
                                        "compile_reduce_overhead"};
  const std::vector<std::string> with_graphs = {"eager", "cuda_graph", "compile_reduce_overhead"};
  const std::vector<std::string> every = {
      "eager", "cuda_graph", "compile", "compile_reduce_overhead", "compile_max_autotune", "jax"};
  std::vector<GpuTask> tasks = {
      {.name = "cifar32", .model = "cifar", .batch = 32, .size = 32, .peers = all},
      {.name = "cifar128", .model = "cifar", .batch = 128, .size = 32, .peers = all},
      {.name = "cifar128_host_data",
       .model = "cifar",
       .batch = 128,
       .size = 32,
       .host_data = true,
       .peers = {"lightning", "device_data"},
       .at_once = 1},  // neither tells others when it uses the device
      imagenet_in_bf16({.name = "alexnet", .model = "alexnet", .peers = with_graphs}),
      imagenet_in_bf16({.name = "vgg16", .model = "vgg16", .peers = with_graphs}),
      imagenet_in_bf16({.name = "resnet50", .model = "resnet50", .peers = every, .at_once = 2}),
      imagenet_in_bf16({.name = "resnet50_recompute",
                        .model = "resnet50",
                        .recompute = true,
                        .peers = {"eager", "keeping"},
                        .at_once = 1}),  // ours does not tell others when it uses the device
      imagenet_in_bf16({.name = "resnet50_jpeg",
                        .model = "resnet50",
                        .jpeg_data = true,
                        .peers = {"device_data"},
                        .at_once = 1}),
      imagenet_in_bf16({.name = "resnet50_nvjpeg",
                        .model = "resnet50",
                        .jpeg_data = true,
                        .nvjpeg = true,
                        .peers = {"device_data"},
                        .at_once = 1}),
      {.name = "resnet50_tf32",
       .model = "resnet50",
       .batch = 64,
       .size = 224,
       .channels_last = true,
       .peers = with_graphs},
      {.name = "gpt2",
       .model = "gpt2",
       .batch = 16,
       .size = 1024,
       .precision = "bf16",
       .peers = {"eager", "compile"}},
      {.name = "dcgan",
       .model = "dcgan",
       .batch = 64,
       .size = 28,
       .peers = {"eager", "cuda_graph", "compile"}},
  };
  if (!env("TENSORPACK_BENCH_JPEGS")) {
    std::erase_if(tasks, [](const GpuTask& task) { return task.jpeg_data; });
  }
  if (tiny) std::transform(tasks.begin(), tasks.end(), tasks.begin(), shrunk);
  return tasks;
}

}  // namespace tensorpack::bench
