// SPDX-License-Identifier: Apache-2.0
// What there is of HDF5 where the library was built without it.
#include "tensorpack/dataflow/format/hdf5.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

Error missing() {
  return make_error("HDF5",
                    "the library was built without HDF5. Install it (on Debian: "
                    "libhdf5-dev) and build again.");
}

}  // namespace

std::vector<at::Tensor> read_hdf5(const std::filesystem::path&, const std::vector<std::string>&) {
  throw missing();
}

int64_t save_hdf5(DataFlow&, const std::filesystem::path&, const std::vector<std::string>&) {
  throw missing();
}

}  // namespace tensorpack
