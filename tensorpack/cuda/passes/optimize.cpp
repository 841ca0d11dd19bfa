// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/device_launcher.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/memory_use.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::cuda {
namespace {

void fuse(Trace& trace, const std::vector<std::string>& fetches, const PassSwitches& options) {
  const size_t before = trace.nodes.size();
  int fused = 0;
  if (options.batch_norm || options.bias_relu || options.layer_norm || options.pointwise) {
    make_functional(trace, options.device);
  }
  if (options.convolutions) fused += fold_images(trace, options.device);
  if (options.batch_norm) fused += fuse_batch_norm(trace, options.device);
  if (options.bias_relu && options.max_pool) fused += pool_before_relu(trace, options.device);
  if (options.bias_relu) fused += fuse_bias_relu(trace, options.device);
  if (options.layer_norm) fused += fuse_layer_norm(trace, options.device);
  if (options.cross_entropy) fused += fuse_cross_entropy(trace, options.device);
  if (options.norm_pool) fuse_norm_pool(trace, options.device);  // into what is counted already
  if (options.max_pool) fused += fuse_max_pool(trace, options.device);
  if (options.pointwise) {
    fused += fuse_embedding_gradient(trace, options.device);
    expose_biases(trace, options.device);
    fused += fuse_pointwise(trace, options.device);
  }
  if (options.column_sums) fused += fuse_column_sums(trace, options.device);
  // What is left: others move biases out of convolutions, or fold their images.
  if (options.few_channels) fused += fuse_filter_gradients(trace, options.device);
  if (fused == 0) return;
  eliminate_dead_code(trace, fetches);
  logging::info_once("{} became {}.",
                     counted(static_cast<int64_t>(before - trace.nodes.size()) + fused, "operator"),
                     counted(fused, "fused one"));
}

}  // namespace

void optimize(Trace& trace, const std::vector<std::string>& fetches, const PassSwitches& options,
              int64_t much_memory) {
  tensorpack::optimize(trace, fetches);
  const int64_t held_by_function = MemoryUse(trace).peak();
  // Without kernels, libtorch's operators as they are beat those that stand in for the fused ones.
  const bool has_kernels = options.device != c10::kCUDA || device_launcher() != nullptr;
  if (has_kernels) {
    fuse(trace, fetches, options);
    if (options.updates) feed_updates(trace, options.device);
  }
  if (options.batch_casts) batch_casts(trace, options.device);
  if (options.keep_copies && has_kernels) {
    const int kept = keep_copies(trace, options.device);
    logging::debug("Updates write copies of {}.", counted(kept, "variable"));
  }
  if (options.recompute == Recompute::kAlways) {
    recompute(trace, options.device);
  } else {
    if (options.recompute == Recompute::kSome && held_by_function >= much_memory) {
      recompute(trace, options.device,
                {.enough = static_cast<int64_t>(kSomeShare * held_by_function), .most_traffic = 1});
    }
    if (options.side_stream) use_side_stream(trace, options.device);  // holds more
  }
  if (options.cudnn_choice) choose_convolutions(trace, options.device);
}

}  // namespace tensorpack::cuda
