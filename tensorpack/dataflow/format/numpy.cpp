// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/numpy.h"

#include "tensorpack/checkpoint/npz.h"
#include "tensorpack/dataflow/detail/padding.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

std::vector<at::Tensor> read_numpy(const std::filesystem::path& path,
                                   const std::vector<std::string>& names) {
  if (path.extension() == ".npy") {
    TP_CHECK(names.empty(), "read_numpy", "'{}' has one array, without a name. Pass no names.",
             path.string());
    return {read_npy(path)};
  }
  TP_CHECK(!names.empty(), "read_numpy", "say which arrays of '{}' are to be read.", path.string());
  const NamedTensors arrays = read_npz(path);
  std::vector<std::string> known;
  for (const auto& [name, array] : arrays) known.push_back(name);
  std::vector<at::Tensor> tensors;
  for (const std::string& name : names) {
    TP_CHECK(arrays.contains(name), "read_numpy", "there is no array '{}' in '{}'. {}", name,
             path.string(), did_you_mean(name, known));
    tensors.push_back(arrays.at(name));
  }
  return tensors;
}

int64_t save_npz(DataFlow& flow, const std::filesystem::path& path,
                 const std::vector<std::string>& names) {
  std::vector<DataPoint> points;
  while (auto point = flow.next()) {
    TP_CHECK(point->size() == names.size(), "save_npz",
             "datapoint {} has {}, but is given {}. Pass one for each.", points.size(),
             counted(std::ssize(*point), "component"), counted(std::ssize(names), "name"));
    points.push_back(std::move(*point));
  }
  TP_CHECK(!points.empty(), "save_npz", "the flow has no datapoints, so nothing was written.");
  const DataPoint columns = detail::stack(points, std::nullopt);
  NamedTensors arrays;
  for (size_t i = 0; i < names.size(); ++i) arrays[names[i]] = columns[i];
  write_npz(path, arrays);
  return std::ssize(points);
}

}  // namespace tensorpack
