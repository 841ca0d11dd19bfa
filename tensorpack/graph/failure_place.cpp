// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/failure_place.h"

#include <utility>

namespace tensorpack {
namespace {

// Not of the ThreadFrame, which is another one for the function that throws.
thread_local FailurePlace* innermost = nullptr;

}  // namespace

FailurePlace::FailurePlace() : outer_(std::exchange(innermost, this)) {}

FailurePlace::~FailurePlace() { innermost = outer_; }

void FailurePlace::note_operator(std::string name, std::string scope) {
  if (innermost == nullptr) return;
  innermost->operator_ = std::move(name);
  innermost->scope_ = std::move(scope);
}

void FailurePlace::note_scope(const std::string& scope) {
  if (innermost == nullptr || !innermost->operator_.empty()) return;
  if (innermost->scope_.empty()) innermost->scope_ = scope;
}

std::string FailurePlace::to_string() const {
  if (operator_.empty() && scope_.empty()) return "";
  if (scope_.empty()) return "in " + operator_;
  return operator_.empty() ? "in scope '" + scope_ + "'"
                           : "in " + operator_ + ", scope '" + scope_ + "'";
}

}  // namespace tensorpack
