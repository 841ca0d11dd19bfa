// SPDX-License-Identifier: Apache-2.0
// Weights under the names that other libraries have for them.
//
//   const NameMap names{
//       .rules = {{"^conv0/", "conv1/"},
//                 {"^fc/W$", "fc/weight", {.transposed = true}},
//                 {"W$", "weight"},
//                 {"/", "."}},                                  // conv0/W is conv1.weight there
//       .ignored = {"num_batches_tracked$"},
//   };
//   SaverRestore("resnet50.safetensors", {.names = names})
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// How a tensor of ours lies in another library's file.
struct ForeignLayout {
  /// Its first two dimensions are swapped there.
  bool transposed = false;
  /// It is part number `part` of `parts` equal ones there, one after another along its first
  /// dimension (after the swap).
  int64_t part = 0;
  int64_t parts = 1;

  bool operator==(const ForeignLayout&) const = default;
};

/// Every match of a regular expression in our name becomes a text, in which $1 stands for its first
/// group. Where it matches, the layout holds.
struct NameRule {
  std::string pattern = {};
  std::string replacement = {};
  ForeignLayout layout = {};
};

struct ForeignTensor {
  std::string name = {};
  ForeignLayout layout = {};
};

/// What tensors are called elsewhere. One list of rules serves both directions: what a tensor of
/// ours is read from, and what it is written as.
struct NameMap {
  /// Applied one after another to a name of ours.
  std::vector<NameRule> rules = {};
  /// Regular expressions for names that only the other library has and that nobody misses.
  std::vector<std::string> ignored = {};

  bool empty() const { return rules.empty() && ignored.empty(); }
  /// Throws Error when a rule is no regular expression, or two that match disagree on the layout.
  ForeignTensor operator()(const std::string& ours) const;
};

/// Variables whose names begin with `prefix` and a slash are looked up without it.
NameMap without_prefix(const std::string& prefix);

struct FromForeign {
  /// By our names; those that the other library does not have are left out.
  NamedTensors ours = {};
  /// Names of theirs that none of ours is read from.
  std::vector<std::string> unused = {};
};

/// What `theirs` has for the tensors that we call `names`. Throws Error for a tensor that cannot be
/// swapped or divided as its rule says.
FromForeign from_foreign(const NameMap& map, const NamedTensors& theirs,
                         const std::vector<std::string>& names);

/// Our tensors as the other library has them. Throws Error when two become one, or parts of one are
/// missing.
NamedTensors to_foreign(const NameMap& map, const NamedTensors& ours);

/// Reads a map from a text file. A line is `pattern -> replacement`, and after that `transposed` or
/// `part 0 of 3` or both; `ignore pattern`; or a comment that begins with #.
NameMap read_name_map(const std::filesystem::path& path);

}  // namespace tensorpack
