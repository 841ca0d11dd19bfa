// SPDX-License-Identifier: Apache-2.0
// What variables hold before training starts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/named_tensors.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// Gives variables their values after they were created, and before the graph is final.
class SessionInit {
 public:
  virtual ~SessionInit() = default;
  virtual void init(Graph& graph) = 0;
};

/// How to treat values that do not fit their variable.
struct RestoreOptions {
  /// Reshape when the number of elements agrees, cast between floating types and to wider integers,
  /// and skip what still does not fit, each with a warning. Otherwise a misfit is an Error.
  bool relaxed = false;
  /// Names that are left as they are.
  std::vector<std::string> ignore = {};
};

/// Sets variables from tensors by name. Names that only the graph or only the dictionary has are
/// listed in one warning each, optimizer slots and other training-only state excepted.
class DictRestore final : public SessionInit {
 public:
  explicit DictRestore(NamedTensors values, RestoreOptions options = {});
  void init(Graph& graph) override;

 private:
  NamedTensors values_;
  RestoreOptions options_;
};

/// Sets every saved variable, the step counter included, from a checkpoint: a file, or a directory
/// whose latest one is meant.
class SaverRestore final : public SessionInit {
 public:
  explicit SaverRestore(std::filesystem::path path, RestoreOptions options = {});
  void init(Graph& graph) override;

 private:
  std::filesystem::path path_;
  RestoreOptions options_;
};

/// Applies several, in order: later ones win.
class ChainInit final : public SessionInit {
 public:
  explicit ChainInit(OwnedList<SessionInit> inits) : inits_(std::move(inits)) {}
  void init(Graph& graph) override;

 private:
  OwnedList<SessionInit> inits_;
};

/// Nothing for an empty path, else SaverRestore. Throws an Error when the path leads nowhere.
Owned<SessionInit> smart_init(const std::filesystem::path& path, RestoreOptions options = {});
/// DictRestore.
Owned<SessionInit> smart_init(NamedTensors values, RestoreOptions options = {});

}  // namespace tensorpack
