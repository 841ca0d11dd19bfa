// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/profile.h"

#include <gmock/gmock.h>

#include <fstream>

namespace tensorpack::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

// A trace of five steps, as the profiler writes it.
class KernelTableTest : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_) << R"({"traceEvents": [
      {"cat": "kernel", "name": "gemm", "dur": 30},
      {"cat": "kernel", "name": "relu", "dur": 5},
      {"cat": "kernel", "name": "gemm", "dur": 20},
      {"cat": "gpu_memcpy", "name": "copy", "dur": 10},
      {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1000},
      {"name": "no category"}]})";
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / "tensorpack_kernel_table_test.json";
};

TEST_F(KernelTableTest, KernelsAreSummedUpAStepTheLongestFirst) {
  EXPECT_EQ(kernel_table(path_),
            "      10.0 us     0.4  gemm\n"
            "       2.0 us     0.2  copy\n"
            "       1.0 us     0.2  relu\n"
            "       0.0 us     0.0  the rest\n"
            "      13.0 us     0.8  all kernels and copies\n");
}

TEST_F(KernelTableTest, TheRestIsOneRow) {
  const std::string table = kernel_table(path_, 1);
  EXPECT_THAT(table, HasSubstr("3.0 us     0.4  the rest"));
  EXPECT_THAT(table, Not(HasSubstr("relu")));
}

}  // namespace
}  // namespace tensorpack::bench
