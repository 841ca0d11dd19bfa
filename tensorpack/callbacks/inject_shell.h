// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <string>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {

struct InjectShellOptions {
  /// In the log directory, unless the path is absolute.
  std::filesystem::path file = "INJECT_SHELL.tmp";
  /// A signal that does the same; 0 for none.
  int signal = SIGUSR1;
};

/// Lets you into a training that runs. Touch the file, or send the signal, and between two steps
/// there is a prompt on the terminal:
///
///   print learning_rate      a variable, or the newest value of a scalar
///   set learning_rate 0.01   a variable with one value
///   save                     a checkpoint, now
///   stop                     end the training, normally
///   go                       leave the prompt; so does the end of the input
///
/// Without a terminal write the commands into the file, one in a line: they are carried out, and
/// the answers are in the log. The file is then removed. It is looked for once a second.
class InjectShell final : public Callback {
 public:
  explicit InjectShell(InjectShellOptions options = {});

  ReportedScalars reports() const override { return no_scalars(); }
  void setup_graph() override;
  void before_train() override;
  void before_epoch() override;
  void trigger_step() override;
  void after_epoch() override;
  void trigger_epoch() override;
  void after_train() override;

  /// Carries out commands until one of them leaves the prompt. Answers are logged.
  void talk(std::istream& commands, bool is_interactive);

 private:
  void look();
  std::string obey(const std::string& line, bool& is_done);
  std::string print(const std::string& name) const;
  std::string set(const std::string& name, const std::string& value) const;
  std::string save();

  InjectShellOptions options_;
  std::filesystem::path path_;       // empty: there is no log directory
  std::optional<ModelSaver> saver_;  // with a log directory
  Timer since_look_;
};

}  // namespace tensorpack
