// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/variable_store.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_map>

#include "tensorpack/graph/chief_only.h"
#include "tensorpack/graph/tensor_key.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/regex.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

void Variable::assign(const at::Tensor& value) const {
  TP_CHECK(value.sizes() == tensor.sizes(), "assign",
           "variable '{}' has shape [{}], the new value [{}]. Reshape the value first.", name,
           fmt::join(tensor.sizes(), ", "), fmt::join(value.sizes(), ", "));
  ChiefOnlyScope::check_assignable(*this);
  at::NoGradGuard no_grad;
  tensor.copy_(value);
  for (const Variable* replica : replicas) replica->tensor.copy_(value);
}

struct VariableStore::Index {
  std::unordered_map<std::string_view, Variable*> by_name;  // keys point into variables_
  std::unordered_multimap<const void*, const Variable*> by_memory;
};

VariableStore::VariableStore() : index_(std::make_unique<Index>()) {}
VariableStore::~VariableStore() = default;

Variable& VariableStore::add(Variable variable) {
  TP_ASSERT(find(variable.name) == nullptr);
  Variable& stored = variables_.emplace_back(std::move(variable));
  index_->by_name.emplace(stored.name, &stored);
  index_->by_memory.emplace(memory_of(stored.tensor), &stored);
  if (stored.is_replica()) {
    if (Variable* original = find(stored.tower_free_name())) original->replicas.push_back(&stored);
  }
  return stored;
}

void VariableStore::find_moved() {
  const bool is_known =
      std::all_of(index_->by_memory.begin(), index_->by_memory.end(),
                  [](const auto& entry) { return memory_of(entry.second->tensor) == entry.first; });
  if (is_known) return;
  index_->by_memory.clear();
  for (const Variable& variable : variables_) {
    index_->by_memory.emplace(memory_of(variable.tensor), &variable);
  }
}

std::vector<const Variable*> VariableStore::in_storage_of(const at::Tensor& tensor) const {
  if (!tensor.defined()) return {};
  std::vector<const Variable*> found;
  const auto [begin, end] = index_->by_memory.equal_range(memory_of(tensor));
  for (auto entry = begin; entry != end; ++entry) found.push_back(entry->second);
  return found;
}

const Variable* VariableStore::owner_of(const at::Tensor& tensor) const {
  const std::vector<const Variable*> candidates = in_storage_of(tensor);
  if (candidates.size() < 2) return candidates.empty() ? nullptr : candidates.front();
  const int64_t offset = tensor.storage_offset();
  const auto owner = std::find_if(candidates.begin(), candidates.end(), [&](const Variable* one) {
    const int64_t begin = one->tensor.storage_offset();
    return begin <= offset && offset < begin + std::max<int64_t>(one->tensor.numel(), 1);
  });
  return owner == candidates.end() ? nullptr : *owner;
}

Variable* VariableStore::find(std::string_view name) {
  auto found = index_->by_name.find(name);
  return found == index_->by_name.end() ? nullptr : found->second;
}

const Variable* VariableStore::find(std::string_view name) const {
  return const_cast<VariableStore*>(this)->find(name);
}

Variable& VariableStore::at(std::string_view name) {
  Variable* found = find(name);
  TP_CHECK(found != nullptr, "variables", "no variable named '{}'. {}", name,
           did_you_mean(name, names()));
  return *found;
}

std::vector<Variable*> VariableStore::trainable(const std::string& regex,
                                                const std::string& tower_prefix) {
  const std::regex pattern = compile_regex("variables", regex);
  std::vector<Variable*> found;
  for (Variable& variable : variables_) {
    if (variable.is_trainable() && variable.tower_prefix == tower_prefix &&
        std::regex_search(variable.tower_free_name(), pattern)) {
      found.push_back(&variable);
    }
  }
  return found;
}

std::vector<std::pair<std::string, at::Tensor>> VariableStore::items(const std::string& regex) {
  const std::regex pattern = compile_regex("variables", regex);
  std::vector<std::pair<std::string, at::Tensor>> found;
  for (const Variable& variable : variables_) {
    if (std::regex_search(variable.name, pattern)) {
      found.emplace_back(variable.name, variable.tensor);
    }
  }
  return found;
}

std::vector<std::string> VariableStore::names() const {
  std::vector<std::string> names;
  for (const Variable& variable : variables_) names.push_back(variable.name);
  return names;
}

}  // namespace tensorpack
