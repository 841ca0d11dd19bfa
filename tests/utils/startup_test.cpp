// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/startup.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <thread>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/launch_environment.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(TuneProcessTest, UsesTheCoresOfTheProcessOnce) {
  const ScopedEnv unset("OMP_NUM_THREADS", std::nullopt);
  // Only the first call of the process counts, also when the test is repeated.
  static const int after_first = (tune_process(), at::get_num_threads());
  EXPECT_EQ(after_first, std::max(1, affinity_cores() / detect_launch().local_size));
  at::set_num_threads(3);
  tune_process();
  EXPECT_EQ(at::get_num_threads(), 3);
}

TEST(SingleThreadedOpsTest, AffectsOnlyItsThread) {
  at::set_num_threads(2);
  int inside = 0, later = 0;
  std::thread([&] {
    single_threaded_ops();
    inside = at::get_num_threads();
  }).join();
  std::thread([&] { later = at::get_num_threads(); }).join();
  EXPECT_EQ(inside, 1);
  EXPECT_EQ(later, 2);
  EXPECT_EQ(at::get_num_threads(), 2);
}

TEST(BlasAdviceTest, GoodLibrariesNeedNone) {
  for (const char* path :
       {"", "/usr/lib/openblas-openmp/libblas.so.3", "/usr/lib/libmkl_rt.so",
        "/usr/lib/libopenblasp-r0.3.21.so", "/usr/lib/blis-openmp/libblas.so.4"}) {
    EXPECT_THAT(detail::blas_advice(path), IsEmpty()) << path;
  }
}

TEST(BlasAdviceTest, SlowLibrariesAreNamedWithTheRemedy) {
  EXPECT_THAT(detail::blas_advice("/usr/lib/blas/libblas.so.3.11.0"),
              HasSubstr("the reference one, /usr/lib/blas/libblas.so.3.11.0"));
  EXPECT_THAT(detail::blas_advice("/usr/lib/blas/libblas.so.3.11.0"),
              HasSubstr("Install libopenblas0-openmp."));
  EXPECT_THAT(detail::blas_advice("/usr/lib/openblas-pthread/libblas.so.3"),
              HasSubstr("ignores the number of threads"));
}

}  // namespace
}  // namespace tensorpack
