// SPDX-License-Identifier: Apache-2.0
// What variables hold before training starts.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/checkpoint/fingerprint.h"
#include "tensorpack/checkpoint/name_map.h"
#include "tensorpack/checkpoint/state_texts.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/named_tensors.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

struct Checkpoint;

/// The program that a training is resumed from.
struct SavedProgram {
  std::string checkpoint = {};  ///< the file, for messages
  Fingerprint fingerprint = {};
  bool must_be_same = false;  ///< AutoResumeOptions::same_program
};

/// Gives variables their values after they were created, and before the graph is final.
class SessionInit {
 public:
  virtual ~SessionInit() = default;
  virtual void init(Graph& graph) = 0;
  /// When a training is resumed: what its callbacks saved. From init() on.
  virtual std::optional<StateTexts> callback_states() const { return std::nullopt; }
  /// When a training is resumed: which program saved it.
  virtual std::optional<SavedProgram> saved_program() const { return std::nullopt; }
  /// The weights of the graph that it was to set and has no value for, or none that fits. From
  /// init() on.
  virtual std::vector<std::string> missing() const { return {}; }
};

/// How to treat values that do not fit their variable.
struct RestoreOptions {
  /// Reshape when the number of elements agrees, cast between floating types and to wider integers,
  /// and skip what still does not fit, each with a warning. Otherwise a misfit is an Error. To a
  /// predictor, what is skipped is missing: see PredictConfig::allow_missing.
  bool relaxed = false;
  /// Names of variables that are left as they are; `w:0` means `w`, here and in dictionaries.
  std::vector<std::string> ignore = {};
  /// Every variable of the graph that is saved must have a value, and every value a variable:
  /// otherwise an Error. For going on exactly.
  bool strict = false;
  /// Whether a checkpoint also gives what only training needs: the step, the learning rate, the
  /// slots of optimizers. Otherwise these stay as the program made them, and the log says so.
  /// Resuming takes them always.
  bool training_state = false;
  /// What variables are called in the file or dictionary, if not as here.
  NameMap names = {};
};

/// Sets the variables that a checkpoint has. Names that only the graph or only the checkpoint has
/// are listed in the log, as warnings unless only training needs them. Returns the weights that it
/// has no value for, or none that fits.
std::vector<std::string> restore_checkpoint(Graph& graph, const Checkpoint& checkpoint,
                                            const RestoreOptions& options = {});

/// Sets variables from tensors by name. Names that only the graph or only the dictionary has are
/// listed in the log, as warnings unless only training needs them.
class DictRestore final : public SessionInit {
 public:
  explicit DictRestore(NamedTensors values, RestoreOptions options = {});
  void init(Graph& graph) override;
  std::vector<std::string> missing() const override { return missing_; }

 private:
  NamedTensors values_;
  RestoreOptions options_;
  std::vector<std::string> missing_;
};

/// Sets the weights, and with RestoreOptions::training_state every saved variable, from a
/// checkpoint: a file, or a directory whose latest one is meant. Or the weights from a file of any
/// kind that read_weights() knows.
class SaverRestore final : public SessionInit {
 public:
  explicit SaverRestore(std::filesystem::path path, RestoreOptions options = {});
  void init(Graph& graph) override;
  std::vector<std::string> missing() const override { return missing_; }

 private:
  std::filesystem::path path_;
  RestoreOptions options_;
  std::vector<std::string> missing_;
};

/// Applies several, in order: later ones win.
class ChainInit final : public SessionInit {
 public:
  explicit ChainInit(OwnedList<SessionInit> inits) : inits_(std::move(inits)) {}
  void init(Graph& graph) override;
  std::optional<StateTexts> callback_states() const override;
  std::optional<SavedProgram> saved_program() const override;
  /// What one of them has no value for; another may have written it.
  std::vector<std::string> missing() const override;

 private:
  OwnedList<SessionInit> inits_;
};

/// Nothing for an empty path, else SaverRestore; `~` at its beginning is the home directory. Throws
/// an Error when the path leads nowhere.
Owned<SessionInit> smart_init(const std::filesystem::path& path, RestoreOptions options = {});
/// Of several files, one after another: later ones win. smart_init({"backbone.npz", "head.npz"}).
Owned<SessionInit> smart_init(std::initializer_list<std::filesystem::path> paths,
                              RestoreOptions options = {});
Owned<SessionInit> smart_init(const std::vector<std::filesystem::path>& paths,
                              RestoreOptions options = {});
/// DictRestore.
Owned<SessionInit> smart_init(NamedTensors values, RestoreOptions options = {});

}  // namespace tensorpack
