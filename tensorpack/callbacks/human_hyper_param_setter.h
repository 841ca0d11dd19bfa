// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tensorpack/callbacks/hyper_param_setter.h"

namespace tensorpack {

struct HumanHyperParamSetterOptions {
  /// In the log directory, unless the path is absolute.
  std::filesystem::path file_name = "hyper.txt";
};

/// Sets a hyper-parameter to what a file says, which you may edit while the training runs: lines of
/// `name:value`, such as
///
///   learning_rate:0.01
///
/// Of several lines for a name the last counts, as `echo learning_rate:0.001 >> hyper.txt` expects;
/// lines that begin with # are comments. It is read before training and after every epoch. Without
/// the file nothing happens. Lines that cannot be understood, and a file without the name, are
/// warnings in the log, once as long as the file stays as it is. Of several processes the chief
/// reads, and all set.
class HumanHyperParamSetter final : public HyperParamSetter {
 public:
  explicit HumanHyperParamSetter(AnyHyperParam param, HumanHyperParamSetterOptions options = {});

  void before_train() override;

 protected:
  std::optional<double> next_value() override;
  bool is_decided_by_chief() const override { return true; }

 private:
  HumanHyperParamSetterOptions options_;
  std::optional<double> value_in(const std::string& text, bool is_new) const;

  std::filesystem::path path_;            // empty: there is no log directory
  std::optional<std::string> last_text_;  // that was read
};

}  // namespace tensorpack
