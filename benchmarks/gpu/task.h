// SPDX-License-Identifier: Apache-2.0
// What the GPU benchmarks train. This table alone decides the sizes, on both sides.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpack::bench {

/// What a peer's name begins with that is ours without the pass that follows.
constexpr std::string_view kWithout = "without:";

struct GpuTask {
  std::string name = {};   ///< entries are `gpu/<name>_vs_<peer>`
  std::string model = {};  ///< the peers' name of it, too
  int64_t batch = 0;
  int64_t size = 0;                ///< side of an image, or tokens of a text
  std::string precision = "tf32";  ///< or "bf16": autocast with float32 weights
  bool recompute = false;          ///< ours makes again what is cheap, to save memory
  bool channels_last = false;      ///< of the input, and of the peers' model
  bool host_data = false;  ///< shuffled from the host's memory instead of one batch on the device
  bool jpeg_data = false;  ///< decoded from the files in the folder TENSORPACK_BENCH_JPEGS
  bool nvjpeg = false;     ///< ... by the device
  bool tiny = false;       ///< for tests on the CPU
  std::vector<std::string> peers = {};
  size_t at_once = 4;  ///< how many peers may live beside ours

  /// Whether its images come as bytes, to be normalised by the model.
  bool has_byte_images() const { return host_data || jpeg_data; }

  /// What a step works off: images or tokens.
  int64_t items() const { return model == "gpt2" ? batch * size : batch; }
  std::string item_name() const { return model == "gpt2" ? "tokens" : "images"; }
};

std::vector<GpuTask> gpu_tasks(bool tiny);

}  // namespace tensorpack::bench
