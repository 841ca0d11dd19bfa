// SPDX-License-Identifier: Apache-2.0
// What there is of HDF5 where the library was built without it.
#include "tensorpack/dataflow/format/hdf5.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

Error without_hdf5(const std::filesystem::path& path) {
  return make_error("HDF5",
                    "'{}' is out of reach: the library was built without HDF5. Install it (on "
                    "Debian: libhdf5-dev) and build again.",
                    path.string());
}

}  // namespace

std::vector<at::Tensor> read_hdf5(const std::filesystem::path& path,
                                  const std::vector<std::string>&) {
  throw without_hdf5(path);
}

int64_t save_hdf5(DataFlow&, const std::filesystem::path& path, const std::vector<std::string>&) {
  throw without_hdf5(path);
}

}  // namespace tensorpack
