// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_handle.h"

#include <algorithm>

#include "tensorpack/tower/tower_variable.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

TowerHandles filter(const TowerHandles& handles, bool is_training) {
  TowerHandles kept;
  for (const TowerHandle& handle : handles) {
    if (handle.is_training() == is_training) kept.add(handle);
  }
  return kept;
}

}  // namespace

TowerHandle::TowerHandle(Graph& graph, std::string name, bool is_training, Op op,
                         std::string variable_prefix)
    : graph_(&graph),
      name_(std::move(name)),
      is_training_(is_training),
      op_(std::move(op)),
      variable_prefix_(std::move(variable_prefix)) {}

TensorRef TowerHandle::get_tensor(const std::string& name) const {
  check_tensor(name, name_.empty() ? "op '" + op_.name() + "'" : "tower '" + name_ + "'");
  return {op_, op_.find_tensor(name) ? name : find_variable(name)->name};
}

void TowerHandle::check_tensor(const std::string& name, const std::string& where) const {
  if (op_.find_tensor(name) || find_variable(name) != nullptr) return;
  std::vector<std::string> known;
  for (const auto& [output, spec] : op_.outputs()) known.push_back(output);
  for (const TensorSpec& spec : op_.inputs()) known.push_back(spec.name);
  throw make_error(where, "no tensor, input or variable named '{}'. {}", name,
                   did_you_mean(name, known));
}

std::vector<TensorRef> TowerHandle::get_tensors(const std::vector<std::string>& names) const {
  std::vector<TensorRef> tensors;
  for (const std::string& name : names) tensors.push_back(get_tensor(name));
  return tensors;
}

Variable* TowerHandle::find_variable(const std::string& name) const {
  Variable* variable = graph_->variables().find(variable_prefix_ + name);
  if (variable != nullptr || !is_training_) return variable;
  return graph_->variables().find(tower_variable_name(op_.state().tower, name));
}

Variable& TowerHandle::get_variable(const std::string& name) const {
  Variable* variable = find_variable(name);
  return variable != nullptr ? *variable : graph_->variables().at(variable_prefix_ + name);
}

const TowerHandle& TowerHandles::add(TowerHandle handle) {
  TP_CHECK(!contains(handle.name()), "towers",
           "there is already a tower named '{}'. Give this one another name.", handle.name());
  handles_.push_back(std::move(handle));
  return handles_.back();
}

const TowerHandle& TowerHandles::operator[](size_t index) const {
  TP_CHECK(index < handles_.size(), "towers", "tower {} was asked for, there are {}.", index,
           handles_.size());
  return handles_[index];
}

const TowerHandle& TowerHandles::operator[](const std::string& name) const {
  for (const TowerHandle& handle : handles_) {
    if (handle.name() == name) return handle;
  }
  std::vector<std::string> known;
  for (const TowerHandle& handle : handles_) known.push_back("'" + handle.name() + "'");
  throw make_error("towers", "no tower named '{}'. {}", name, did_you_mean(name, known));
}

bool TowerHandles::contains(const std::string& name) const {
  return std::any_of(handles_.begin(), handles_.end(),
                     [&](const TowerHandle& handle) { return handle.name() == name; });
}

TowerHandles TowerHandles::training() const { return filter(*this, true); }

TowerHandles TowerHandles::inference() const { return filter(*this, false); }

}  // namespace tensorpack
