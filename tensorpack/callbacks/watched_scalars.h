// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensorpack/callbacks/trainer_base.h"

namespace tensorpack {

/// The names of the scalars that a callback looks at in every run: `asked`, or the trainer's costs
/// when it is empty. Warns from `where` about those that no op gives, before they are missed.
std::vector<std::string> watched_scalars(TrainerBase& trainer, const std::string& asked,
                                         std::string_view where);

/// Those of `names` that are scalars of `op`.
std::vector<std::string> scalars_of(const Op& op, const std::vector<std::string>& names);

}  // namespace tensorpack
