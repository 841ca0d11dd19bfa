// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/graph/op.h"

namespace tensorpack {

/// What the first tower runs of an op: the op itself if it is recorded, or the first such member.
/// An empty op when nothing is recorded.
Op first_program(const Op& op);

}  // namespace tensorpack
