// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/checkpoint/fingerprint.h"
#include "tensorpack/session/session.h"

namespace tensorpack {

/// What the first tower trains: the first `count` variables of the graph, and the operators of the
/// ops that take training data, recorded on trial inputs. The same for any number of towers and
/// ranks. Ops that cannot be recorded have no lines.
std::vector<FingerprintPart> fingerprint_of_graph(Graph& graph, Session& session, size_t count);

}  // namespace tensorpack
