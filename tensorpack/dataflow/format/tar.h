// SPDX-License-Identifier: Apache-2.0
// Shards as WebDataset has them: tar files in which the parts of a datapoint are files that lie
// together and differ in what follows the first dot of their name: 0001.jpg, 0001.cls.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

/// Yields the datapoints of a shard, plain or compressed with gzip: a component of bytes for each
/// of `extensions`, in that order. Other files of a datapoint are left out; one that is missing is
/// an error.
///
///   FromList(names) | interleave([](const DataPoint& p) -> DataFlowPtr {
///     return std::make_unique<TarShard>(bytes_view(p[0]), std::vector<std::string>{"jpg", "cls"});
///   })
class TarShard final : public DataFlow {
 public:
  TarShard(std::filesystem::path path, std::vector<std::string> extensions);
  TarShard(TarShard&&) noexcept;
  ~TarShard() override;

  void start(int64_t pass) override;
  std::optional<DataPoint> next() override;

  /// What the files of the last datapoint have in common: the name up to its first dot.
  const std::string& key() const;

 private:
  struct Impl;
  detail::Pimpl<Impl> impl_;
};

/// Writes the rest of the pass of `flow`, whole or not at all: component i of datapoint n, which
/// must be bytes, as the file `n.extension`. Returns the number of datapoints.
int64_t save_tar(DataFlow& flow, const std::filesystem::path& path,
                 const std::vector<std::string>& extensions);

}  // namespace tensorpack
