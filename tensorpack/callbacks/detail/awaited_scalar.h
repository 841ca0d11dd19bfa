// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/callbacks/trainer_base.h"

namespace tensorpack {

/// A scalar that the callback `owner` waits for, by a name that may be misspelt.
class AwaitedScalar {
 public:
  AwaitedScalar(std::string owner, std::string name)
      : owner_(std::move(owner)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  /// In before_train(): throws an Error with the nearest names if it is known that nothing will
  /// report the scalar.
  void check_before(TrainerBase& trainer);
  /// When the scalar is due: whether it was reported. Otherwise warns, and says what is not done.
  bool is_there(TrainerBase& trainer, const std::string& consequence);
  /// In after_train(): throws an Error if the scalar was due in a whole training, was never
  /// reported, and no callback says that it would be.
  void check_after(TrainerBase& trainer) const;

 private:
  std::string owner_;
  std::string name_;
  bool was_missing_ = false;
};

}  // namespace tensorpack
