// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tensorpack {

/// What the scope of an operator of the backward pass begins with: "gradients/conv0".
inline constexpr std::string_view kGradientScope = "gradients";

/// Where an operator belongs.
struct LayerOfOperator {
  std::string layer = {};  ///< "conv0"; empty outside all scopes
  bool is_backward = false;
};

/// Of the scope that an operator was recorded in.
LayerOfOperator layer_of_scope(const std::string& scope);

/// While it lives, knows for operators of this thread to which layer they belong, in the backward
/// pass too: autograd numbers what it differentiates.
class [[nodiscard]] GradientScopes {
 public:
  GradientScopes();
  ~GradientScopes();
  GradientScopes(const GradientScopes&) = delete;
  GradientScopes& operator=(const GradientScopes&) = delete;

  /// The scope of the operator that is about to run: the current VariableScope, or, in the backward
  /// pass, "gradients/" and that of the operator whose gradient it computes.
  std::string current();

 private:
  static GradientScopes*& active();

  std::unordered_map<uint64_t, std::string> scopes_;  // by autograd's number
  std::vector<uint64_t> differentiated_;              // what is being differentiated, inner last
  GradientScopes* outer_;
  uint64_t handle_;
};

}  // namespace tensorpack
