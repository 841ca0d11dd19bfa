// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

struct CacheOptions {
  /// Whether passes after the first come in a new random order each.
  bool shuffle = false;
  std::optional<uint64_t> seed = {};
};

/// Keeps pass 0 of the flow in memory; later passes yield the same datapoints again.
///
/// The tensors are shared: what comes behind must not change them in place.
/// A warning tells of it.
Stage cache(CacheOptions options = {});

/// Keeps pass 0 of the flow in a file, for other runs of the program as well: if the file is there,
/// the flow is never asked. It is written before the first datapoint comes, whole or not at all.
///
/// What makes the datapoints must not have changed since: nobody can tell but the user, who removes
/// the file.
Stage cache_to_disk(std::filesystem::path path);

}  // namespace tensorpack
