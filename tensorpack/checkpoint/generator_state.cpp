// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/generator_state.h"

#include <ATen/ATen.h>

#include <mutex>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Those of the graph's ops, and libtorch's default ones, from which host code draws.
std::map<std::string, at::Generator> generators(const Graph& graph) {
  std::map<std::string, at::Generator> found;
  for (const auto& [name, generator] : graph.generators()) {
    found.emplace("generator/" + name, generator);
  }
  const c10::Device device = graph.options().device;
  found.emplace("generator/cpu", at::globalContext().defaultGenerator(at::kCPU));
  if (device.is_cuda()) {
    found.emplace("generator/cuda", at::globalContext().defaultGenerator(device));
  }
  return found;
}

std::string to_hex(const at::Tensor& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  const auto* data = bytes.data_ptr<uint8_t>();
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    text += kDigits[data[i] >> 4];
    text += kDigits[data[i] & 15];
  }
  return text;
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

at::Tensor from_hex(const std::string& name, const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size() / 2)}, at::kByte);
  auto* data = bytes.data_ptr<uint8_t>();
  bool valid = text.size() % 2 == 0;
  for (size_t i = 0; valid && i < text.size(); i += 2) {
    const int high = digit(text[i]);
    const int low = digit(text[i + 1]);
    valid = high >= 0 && low >= 0;
    data[i / 2] = static_cast<uint8_t>(high * 16 + low);
  }
  TP_CHECK(valid, "restore", "the state of '{}' in the checkpoint is damaged. Use another one.",
           name);
  return bytes;
}

}  // namespace

StateTexts save_generators(const Graph& graph) {
  const auto running = graph.lock_variables();  // runs draw from them
  StateTexts states;
  for (auto [name, generator] : generators(graph)) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    states.emplace(name, to_hex(generator.get_state()));
  }
  return states;
}

void restore_generators(const Graph& graph, const StateTexts& states) {
  const auto running = graph.lock_variables();
  for (auto [name, generator] : generators(graph)) {
    const auto found = states.find(name);
    if (found == states.end()) continue;
    const at::Tensor state = from_hex(name, found->second);
    std::lock_guard<std::mutex> lock(generator.mutex());
    try {
      generator.set_state(state);
    } catch (const c10::Error& error) {
      throw make_error("restore",
                       "the state of '{}' in the checkpoint does not fit: {}. Use another one.",
                       name, error.what_without_backtrace());
    }
  }
}

}  // namespace tensorpack
