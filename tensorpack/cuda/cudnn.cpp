// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/cudnn.h"

#include "tensorpack/cuda/shared_library.h"

namespace tensorpack::cuda {
namespace {

Cudnn open_cudnn() {
  const SharedLibrary library("convolutions", "cuDNN", places_of("cudnn", {"9"}));
  Cudnn cudnn;
  library.find(cudnn.version, "cudnnGetVersion");
  library.find(cudnn.error_text, "cudnnGetErrorString");
  library.find(cudnn.create_handle, "cudnnCreate");
  library.find(cudnn.set_stream, "cudnnSetStream");
  library.find(cudnn.create, "cudnnBackendCreateDescriptor");
  library.find(cudnn.destroy, "cudnnBackendDestroyDescriptor");
  library.find(cudnn.finalize, "cudnnBackendFinalize");
  library.find(cudnn.set, "cudnnBackendSetAttribute");
  library.find(cudnn.get, "cudnnBackendGetAttribute");
  library.find(cudnn.execute, "cudnnBackendExecute");
  return cudnn;
}

}  // namespace

const Cudnn& cudnn() {
  static const Cudnn opened = open_cudnn();
  return opened;
}

}  // namespace tensorpack::cuda
