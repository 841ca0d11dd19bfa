// SPDX-License-Identifier: Apache-2.0
// Which operator of which layer threw.
//
// By the time an exception reaches who can add to its text, scopes are closed and operators have
// returned. They note their place on the way out.
#pragma once

#include <string>

namespace tensorpack {

/// What is noted on this thread while it lives. The innermost one collects.
class [[nodiscard]] FailurePlace {
 public:
  FailurePlace();
  ~FailurePlace();
  FailurePlace(const FailurePlace&) = delete;
  FailurePlace& operator=(const FailurePlace&) = delete;

  /// "in aten::embedding, scope 'embed'"; the scope alone if no operator threw, "" if nothing is
  /// known.
  std::string to_string() const;

  /// Called when an operator throws.
  static void note_operator(std::string name, std::string scope);
  /// Called when an exception leaves a scope; the innermost one counts.
  static void note_scope(const std::string& scope);

 private:
  std::string operator_;
  std::string scope_;
  FailurePlace* outer_;
};

}  // namespace tensorpack
