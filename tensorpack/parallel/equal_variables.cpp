// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/equal_variables.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/optim/wrappers.h"
#include "tensorpack/parallel/checksums.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

using Variables = std::vector<const Variable*>;
using Checksums = std::vector<uint64_t>;

constexpr const char* kWhatMayDiffer =
    "What each may have for itself belongs in get_tower_variable() or in a variable of "
    "VariableRole::kModel. Where processors of different kinds, or numbers of threads, round "
    "differently, set .check_equal = false.";

bool must_be_equal(const Variable& variable) {
  const bool is_alike =
      variable.role == VariableRole::kTrainable || variable.role == VariableRole::kGlobal;
  return is_alike && !variable.is_replica() && !is_accumulated_gradient(variable);
}

// Numbers such as a learning rate come first: where they differ, weights follow.
Variables variables_to_compare(const Graph& graph, size_t count) {
  Variables variables;
  for (const Variable& variable : graph.variables().all()) {
    if (count-- == 0) break;
    if (must_be_equal(variable)) variables.push_back(&variable);
  }
  const auto is_number = [](const Variable* variable) {
    return variable->role == VariableRole::kGlobal && variable->tensor.dim() == 0;
  };
  std::stable_partition(variables.begin(), variables.end(), is_number);
  return variables;
}

// For the message: the number, or what tells larger values apart.
std::string describe(const at::Tensor& tensor) {
  if (tensor.numel() == 1 && !tensor.is_complex()) {
    const bool is_float = tensor.scalar_type() == at::kFloat;
    return is_float ? fmt::format("{}", tensor.item<float>())
                    : fmt::format("{}", tensor.item<double>());
  }
  return fmt::format("a tensor with checksum {:016x}", checksums({tensor})[0]);
}

std::optional<size_t> first_difference(const Checksums& a, const Checksums& b) {
  const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (in_a == a.end()) return std::nullopt;
  return static_cast<size_t>(in_a - a.begin());
}

std::string names_of_others(const Variables& variables, const Checksums& a, const Checksums& b,
                            size_t first) {
  constexpr size_t kMost = 3;
  std::vector<std::string> names;
  for (size_t i = first + 1; i < variables.size(); ++i) {
    if (a[i] != b[i]) names.push_back("'" + variables[i]->name + "'");
  }
  if (names.empty()) return "";
  const size_t more = names.size() - std::min(names.size(), kMost);
  names.resize(names.size() - more);
  const std::string rest = more == 0 ? "" : fmt::format(" and {} more", more);
  return fmt::format(" ({}{} differ, too)", join(names), rest);
}

// The copies that the other towers have, each with its original.
struct Replicas {
  Variables originals = {};
  Variables copies = {};
  Checksums expected = {};
  Checksums found = {};
};

void check_towers(const Replicas& towers, int64_t epoch) {
  const auto first = first_difference(towers.expected, towers.found);
  if (!first) return;
  const Variable& original = *towers.originals[*first];
  const Variable& copy = *towers.copies[*first];
  throw make_error(
      "equal variables",
      "towers differ at the end of epoch {} in what must be equal: '{}' is {}, and '{}' is {}{}. "
      "Set variables by assign(), which reaches all towers, where tensor.fill_() does not, and "
      "update them by the gradients of compute_gradients(), which are averaged over the towers, "
      "where those of torch::autograd::grad() are not. {}",
      epoch, original.name, describe(original.tensor), copy.name, describe(copy.tensor),
      names_of_others(towers.copies, towers.expected, towers.found, *first), kWhatMayDiffer);
}

std::string to_bytes(const Checksums& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(uint64_t)};
}

Checksums from_bytes(const std::string& bytes) {
  Checksums values(bytes.size() / sizeof(uint64_t));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(uint64_t));
  return values;
}

// One number a rank, and all checksums only where these differ.
void check_ranks(const Variables& variables, const Checksums& own, ProcessGroup& processes,
                 int64_t epoch) {
  const std::string bytes = to_bytes(own);
  const std::vector<std::string> hashes = processes.all_gather(std::to_string(xxh64(bytes)));
  const auto differs = std::find_if(hashes.begin(), hashes.end(),
                                    [&](const auto& hash) { return hash != hashes[0]; });
  if (differs == hashes.end()) return;
  const auto rank = static_cast<size_t>(differs - hashes.begin());
  const std::vector<std::string> all = processes.all_gather(bytes);
  const Checksums of_chief = from_bytes(all[0]);
  const Checksums of_rank = from_bytes(all[rank]);
  const size_t first = *first_difference(of_chief, of_rank);
  const std::vector<std::string> values = processes.all_gather(describe(variables[first]->tensor));
  throw make_error(
      fmt::format("rank {}", processes.rank()),
      "ranks differ at the end of epoch {} in what must be equal: '{}' is {} in rank 0, and {} in "
      "rank {}{}. Let callbacks that change variables run in all ranks (set_chief_only(false)) and "
      "do the same there, and update variables by the gradients of compute_gradients(), which are "
      "averaged over the ranks. {}",
      epoch, variables[first]->name, values[0], values[rank], rank,
      names_of_others(variables, of_chief, of_rank, first), kWhatMayDiffer);
}

}  // namespace

void check_equal_variables(const Graph& graph, const EqualVariablesOptions& options) {
  const auto lock = graph.lock_variables();
  const at::NoGradGuard no_grad;
  const Variables variables = variables_to_compare(graph, options.count);
  Replicas towers;
  std::vector<at::Tensor> tensors;
  for (const Variable* variable : variables) tensors.push_back(variable->tensor);
  for (const Variable* variable : variables) {
    for (const Variable* copy : variable->replicas) {
      towers.originals.push_back(variable);
      towers.copies.push_back(copy);
      tensors.push_back(copy->tensor);
    }
  }
  const Checksums all = checksums(tensors);
  const Checksums own(all.begin(), all.begin() + std::ssize(variables));
  for (size_t i = 0; i < variables.size(); ++i) {
    towers.expected.insert(towers.expected.end(), variables[i]->replicas.size(), own[i]);
  }
  towers.found.assign(all.begin() + std::ssize(variables), all.end());
  check_towers(towers, options.epoch);
  if (options.processes != nullptr) {
    check_ranks(variables, own, *options.processes, options.epoch);
  }
}

}  // namespace tensorpack
