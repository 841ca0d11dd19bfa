// SPDX-License-Identifier: Apache-2.0
// Predictors in somebody else's process leave its settings alone; tune_process() changes them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <filesystem>
#include <memory>

#include "tensorpack/export/export_model.h"
#include "tensorpack/export/exported_model.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/predict/data_parallel_predictor.h"
#include "tensorpack/predict/offline_predictor.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/startup.h"

namespace tensorpack {
namespace {

PredictConfig config() {
  return {
      .inputs = {{"x", {-1, 2}}},
      .tower_func = [](const at::Tensor& x) { named("y", get_variable("w", {}) * x); },
      .output_names = {"y"},
      .graph = {.seed = 1},
  };
}

// Whether malloc takes a block of 64 MB from mmap, as it does unless its thresholds were changed.
bool malloc_maps_large_blocks() {
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const size_t before = mallinfo2().hblks;
  const std::unique_ptr<char[]> block(new char[size_t{64} << 20]);
  block[0] = 1;
  return mallinfo2().hblks > before;
#else
  return true;
#endif
}

TEST(ProcessSettingsTest, PredictorsChangeNoSettingOfTheProcess) {
  const TempDir dir;
  const int threads_before = at::get_num_threads();
  constexpr int kThreads = 7;  // not what tune_process() would choose
  at::set_num_threads(kThreads);
  const at::Allocator* const allocator = c10::GetCPUAllocator();
  const bool maps_large_blocks = malloc_maps_large_blocks();  // false when the tests are repeated
  const at::Tensor x = at::ones({3, 2});

  OfflinePredictor predict(config());
  predict(x);
  DataParallelOfflinePredictor(config(), Devices::cpu(2))({{x}, {x}});
  export_model(config(), dir / "model");
  load_exported_model(dir / "model")(x);

  EXPECT_EQ(c10::GetCPUAllocator(), allocator) << "libtorch's allocator was replaced";
  EXPECT_EQ(at::get_num_threads(), kThreads);
  EXPECT_EQ(malloc_maps_large_blocks(), maps_large_blocks) << "malloc's thresholds were changed";
  at::set_num_threads(threads_before);
}

at::Tensor serve(const std::filesystem::path& file, const at::Tensor& x) {
  tune_process();
  const ExportedModel model = load_exported_model(file);
  return model(x)[0];
}

TEST(ProcessSettingsTest, AServerMayTuneItself) {
  const TempDir dir;
  export_model(config(), dir / "model");
  const at::Tensor x = at::ones({3, 2});
  EXPECT_TRUE(at::equal(serve(dir / "model", x), OfflinePredictor(config())(x)[0]));
}

}  // namespace
}  // namespace tensorpack
