// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/capture.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <functional>

#include "tensorpack/cuda/driver.h"
#include "tensorpack/cuda/jit.h"
#include "tensorpack/cuda/kernels/device_launcher.h"
#include "tensorpack/cuda/memset_nodes.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::cuda {
namespace {

// Other threads (which stage input) may allocate pinned memory meanwhile.
constexpr auto kMode = cudaStreamCaptureModeThreadLocal;

void try_to(const char* what, const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    logging::debug("After a failed capture: cannot {}: {}", what, error.what());
  }
}

// The process's first capture allocates a little where libtorch cannot do without. Throws if that
// cannot be had.
void check_room() {
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kLong);
  const at::Tensor seed = at::empty({1}, options);
  const at::Tensor offset = at::empty({1}, options);
}

// Older libtorch instantiates a graph at once, and shows nobody what was captured.
template <typename Graph>
constexpr bool kKeepsGraph = requires(Graph graph) {
  Graph(true);
  graph.raw_cuda_graph();
  graph.instantiate();
};

template <typename Graph>
Graph make_graph() {
  if constexpr (kKeepsGraph<Graph>) {
    return Graph(/*keep_graph=*/true);
  } else {
    return Graph();
  }
}

// See Note [Memsets in graphs].
void replace_memsets_of(void* graph) {
  if (device_launcher() == nullptr) return;
  try {
    const int replaced = replace_memsets(graph, function_of(fill_source()), driver());
    logging::debug("Kernels took the place of {} in a captured graph.",
                   counted(replaced, "memset"));
  } catch (const Error& error) {
    logging::warning_once("Memsets stay in captured graphs: {}", error.what());
  }
}

template <typename Graph>
void instantiate(Graph& graph, bool replaces_memsets) {
  if constexpr (kKeepsGraph<Graph>) {
    if (replaces_memsets) replace_memsets_of(graph.raw_cuda_graph());
    graph.instantiate();
  }
}

// libtorch leaves a failed capture half open. Memory may be what was missing.
void abandon(const CaptureSpace& space, const at::cuda::MempoolId_t& pool,
             const at::Generator& generator, const at::Tensor& scratch) {
  cudaGraph_t broken = nullptr;
  cudaStreamEndCapture(space.stream, &broken);
  if (broken != nullptr) cudaGraphDestroy(broken);
  cudaGetLastError();  // clears it
  try_to("end allocating",
         [&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(space.device, pool); });
  try_to("end allocating on the host",
         [&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool); });
  try_to("release the memory",
         [&] { c10::cuda::CUDACachingAllocator::releasePool(space.device, pool); });
  // The generators still think they are being captured. A capture that ends well tells them that
  // they are not.
  try_to("reset the generators", [&] {
    at::cuda::CUDAGraph small;
    if (generator.defined()) small.register_generator_state(generator);
    small.capture_begin({0, 0}, kMode);
    scratch.zero_();
    small.capture_end();
  });
}

// Captures of several threads would meet in the default generator.
std::mutex& capturing() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

CaptureSpace::CaptureSpace(c10::DeviceIndex device, bool replaces_memsets)
    : device(device),
      replaces_memsets(replaces_memsets),
      // What the side stream does waits for nobody, so the path goes first (Note [A side stream]).
      stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, device)) {}

CaptureSpace::Pool CaptureSpace::pool() const {
  Pool pool = pool_.lock();
  if (!pool) {
    pool = std::make_shared<const at::cuda::MempoolId_t>(at::cuda::graph_pool_handle());
    pool_ = pool;
  }
  return pool;
}

Capture::Capture(const CaptureSpace& space, const at::Generator& generator)
    : space_(space),
      generator_(generator),
      turn_(capturing()),
      on_stream_(space.stream),
      graph_(make_graph<at::cuda::CUDAGraph>()),
      pool_(space.pool()) {
  c10::cuda::device_synchronize();
  // What earlier runs left in the cache would stand beside the memory of the capture.
  c10::cuda::CUDACachingAllocator::emptyCache();
  check_room();
  scratch_ = at::empty({1}, at::kCUDA);
  if (generator_.defined()) graph_.register_generator_state(generator_);
  try {
    graph_.capture_begin(*pool_, kMode);
  } catch (...) {
    abandon(space, *pool_, generator_, scratch_);
    throw;
  }
}

Capture::~Capture() {
  if (on_stream_) abandon(space_, *pool_, generator_, scratch_);
}

void Capture::end() {
  graph_.capture_end();
  // libtorch began with setting the generators' places on the device to zero, on this stream. Where
  // it is launched, they are set to where the generators are: that must come later.
  space_.stream.synchronize();
  on_stream_.reset();
  scratch_.reset();
  turn_.unlock();
  instantiate(graph_, space_.replaces_memsets);
}

}  // namespace tensorpack::cuda
