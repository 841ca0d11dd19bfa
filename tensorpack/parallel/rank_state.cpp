// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/rank_state.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "tensorpack/checkpoint/generator_state.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/seed.h"

namespace tensorpack {
namespace {

std::string prefix_of(int rank) { return "rank" + std::to_string(rank) + "/"; }

std::string to_text(const StateTexts& states) { return nlohmann::json(states).dump(); }

StateTexts from_text(const std::string& text) {
  return nlohmann::json::parse(text).get<StateTexts>();
}

}  // namespace

StateTexts gather_generators(const Graph& graph, ProcessGroup& processes) {
  StateTexts all;
  int rank = 0;
  for (const std::string& text : processes.all_gather(to_text(save_generators(graph)))) {
    for (const auto& [name, state] : from_text(text)) {
      all.emplace(rank == 0 ? name : prefix_of(rank) + name, state);
    }
    ++rank;
  }
  return all;
}

void restore_generators_of_rank(const Graph& graph, const StateTexts& states, int rank) {
  if (rank == 0) return restore_generators(graph, states);
  const std::string prefix = prefix_of(rank);
  StateTexts own;
  for (const auto& [name, state] : states) {
    if (name.starts_with(prefix)) own.emplace(name.substr(prefix.size()), state);
  }
  if (own.empty()) {
    logging::warning("The checkpoint has no random numbers of rank {}: they start anew.", rank);
  }
  restore_generators(graph, own);
}

uint64_t seed_of_chief(ProcessGroup& processes) {
  StateTexts own;
  if (processes.is_chief()) own.emplace("seed", std::to_string(global_seed()));
  return *parse_seed(share_of_chief(own, processes).at("seed"));
}

StateTexts share_of_chief(const StateTexts& states, ProcessGroup& processes) {
  std::string text = processes.is_chief() ? to_text(states) : "";
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  processes.broadcast(size);
  text.resize(static_cast<size_t>(size.item<int64_t>()));
  const at::Tensor bytes =
      at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::TensorOptions(at::kByte));
  processes.broadcast(bytes);
  return from_text(text);
}

}  // namespace tensorpack
