// SPDX-License-Identifier: Apache-2.0
// The few functions of NVRTC and of the CUDA driver that compile and launch a kernel, declared here
// so that no header of the toolkit is needed, and found at run time.
#pragma once

#include <cstddef>
#include <string>

namespace tensorpack::cuda {

// As in nvrtc.h: results are 0 for success, handles are pointers.
struct Nvrtc {
  int (*version)(int* major, int* minor) = nullptr;
  int (*create)(void** program, const char* source, const char* name, int headers,
                const char* const* header_sources, const char* const* header_names) = nullptr;
  int (*compile)(void* program, int count, const char* const* options) = nullptr;
  int (*destroy)(void** program) = nullptr;
  int (*log_size)(void* program, size_t* size) = nullptr;
  int (*log)(void* program, char* text) = nullptr;
  int (*cubin_size)(void* program, size_t* size) = nullptr;
  int (*cubin)(void* program, char* bytes) = nullptr;
  const char* (*error_text)(int result) = nullptr;
};

// CUDA_MEMSET_NODE_PARAMS of cuda.h.
struct MemsetParameters {
  unsigned long long destination = 0;
  size_t pitch = 0;
  unsigned value = 0;
  unsigned element_size = 1;
  size_t width = 0;  // in elements
  size_t height = 1;
};

// CUDA_KERNEL_NODE_PARAMS of cuda.h.
struct KernelNodeParameters {
  void* function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  void** arguments = nullptr;
  void** extra = nullptr;
};

// As in cuda.h.
struct Driver {
  int (*current_device)(int* device) = nullptr;
  int (*device_attribute)(int* value, int attribute, int device) = nullptr;
  int (*load)(void** module, const void* image) = nullptr;
  int (*function)(void** function, void* module, const char* name) = nullptr;
  int (*set_attribute)(void* function, int attribute, int value) = nullptr;
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream,
                void** arguments, void** extra) = nullptr;
  int (*error_text)(int result, const char** text) = nullptr;
  int (*graph_nodes)(void* graph, void** nodes, size_t* count) = nullptr;
  int (*node_type)(void* node, int* type) = nullptr;
  int (*nodes_before)(void* node, void** nodes, size_t* count) = nullptr;
  int (*nodes_after)(void* node, void** nodes, size_t* count) = nullptr;
  int (*memset_parameters)(void* node, MemsetParameters* parameters) = nullptr;
  int (*add_kernel_node)(void** node, void* graph, void* const* before, size_t count,
                         const KernelNodeParameters* parameters) = nullptr;
  int (*add_dependencies)(void* graph, void* const* from, void* const* to, size_t count) = nullptr;
  int (*destroy_node)(void* node) = nullptr;
};

/// Both throw Error if the library, or a function in it, is not there.
const Nvrtc& nvrtc();
const Driver& driver();

}  // namespace tensorpack::cuda
