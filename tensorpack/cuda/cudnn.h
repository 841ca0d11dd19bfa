// SPDX-License-Identifier: Apache-2.0
// The few functions of cuDNN's backend that make and run plans, declared here so that no header of
// it is needed, and found at run time. It is the cuDNN that libtorch has loaded.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensorpack::cuda {

// As in cudnn_graph.h: results are 0 for success; handles and descriptors are pointers.
struct Cudnn {
  // cudnnBackendDescriptorType_t
  static constexpr int kConvolution = 1, kEngine = 2, kEngineConfig = 3, kHeuristics = 4, kPlan = 5;
  static constexpr int kForward = 10, kBackwardFilter = 11, kBackwardData = 12, kGraph = 15,
                       kVariantPack = 16, kTensor = 17;
  // cudnnBackendAttributeType_t
  static constexpr int kHandle = 0, kDataType = 1, kInt64 = 3, kFloat = 4, kPointer = 6,
                       kConvolutionMode = 7, kHeuristicsMode = 8, kNumericalNote = 11,
                       kDescriptor = 15, kBehaviorNote = 19, kChar = 24;

  size_t (*version)() = nullptr;
  const char* (*error_text)(int result) = nullptr;
  int (*create_handle)(void** handle) = nullptr;
  int (*set_stream)(void* handle, void* stream) = nullptr;
  int (*create)(int type, void** descriptor) = nullptr;
  int (*destroy)(void* descriptor) = nullptr;
  int (*finalize)(void* descriptor) = nullptr;
  int (*set)(void* descriptor, int attribute, int type, int64_t count,
             const void* values) = nullptr;
  int (*get)(void* descriptor, int attribute, int type, int64_t room, int64_t* count,
             void* values) = nullptr;
  int (*execute)(void* handle, void* plan, void* variant_pack) = nullptr;
};

/// Throws Error if the library, or a function in it, is not there.
const Cudnn& cudnn();

}  // namespace tensorpack::cuda
