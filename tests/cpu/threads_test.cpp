// SPDX-License-Identifier: Apache-2.0
// Each kernel computes on all threads that libtorch may use. (A list by hand: a new kernel is
// added.)
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>

#include "tensorpack/cpu/kernels/max_pool.h"
#include "tensorpack/cpu/kernels/weight_gradient.h"
#include "tensorpack/cpu/kernels/winograd.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/utils/processor.h"
#include "tensorpack/utils/thread.h"
#include "tests/support/fork_count.h"

namespace tensorpack {
namespace {

struct Kernel {
  std::string name;
  bool needs_avx2;
  std::function<void()> call;
};

void PrintTo(const Kernel& kernel, std::ostream* out) { *out << kernel.name; }

at::Tensor images(int64_t channels) {
  return at::rand({2, channels, 32, 32}).contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor filters() { return at::rand({32, 32, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast); }

// Of several chunks.
at::Tensor weights() { return at::rand({1 << 17}); }

at::Tensor learning_rate() { return at::full({}, 0.1); }
at::Tensor first_step() { return at::ones({}, at::kDouble); }

class KernelThreadsTest : public testing::TestWithParam<Kernel> {};

TEST_P(KernelThreadsTest, TakePartInTheKernel) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "parallel_for() has other threads under the thread sanitizer.";
#endif
  if (GetParam().needs_avx2 && !has_avx2()) GTEST_SKIP() << "This processor has no AVX2.";
  for (const int threads : {2, 5}) {
    OpThreadsScope scope(threads);
    EXPECT_EQ(threads_forked_by(GetParam().call), threads);
  }
  OpThreadsScope scope(1);
  EXPECT_EQ(threads_forked_by(GetParam().call), 1);
}

const cpu::Padding kPadding = {1, 1};

INSTANTIATE_TEST_SUITE_P(
    All, KernelThreadsTest,
    testing::Values(
        Kernel{"Winograd", true, [] { cpu::winograd(images(32), filters(), {}, kPadding); }},
        Kernel{"WinogradInputGradient", true,
               [] {
                 cpu::winograd_input_gradient(images(32), filters(), {2, 32, 32, 32}, kPadding);
               }},
        Kernel{"WinogradWeightGradient", true,
               [] { cpu::winograd_weight_gradient(images(32), images(32), kPadding); }},
        Kernel{"WeightGradient", true,
               [] {
                 cpu::weight_gradient(images(16), images(1), {16, 1, 3, 3}, kPadding);
               }},
        Kernel{"PoolSquares", true, [] { cpu::pool_squares(images(32), /*relu=*/true); }},
        Kernel{"PoolSquaresBackward", true,
               [] {
                 const auto places = std::get<1>(cpu::pool_squares(images(32), false));
                 cpu::pool_squares_backward(at::rand(places.sizes()), places, {2, 32, 32, 32});
               }},
        Kernel{"Sgd", false,
               [] { kernels::sgd_({weights()}, {}, {weights()}, learning_rate(), {}); }},
        Kernel{"Momentum", false,
               [] {
                 kernels::sgd_({weights()}, {weights()}, {weights()}, learning_rate(),
                               {.momentum = 0.9});
               }},
        Kernel{"Adam", false,
               [] {
                 kernels::adam_({weights()}, {weights()}, {weights()}, {weights()}, learning_rate(),
                                first_step(), {});
               }},
        Kernel{"Lamb", false,
               [] {
                 kernels::lamb_({weights()}, {weights()}, {weights()}, {weights()}, learning_rate(),
                                first_step(), {});
               }},
        Kernel{"RMSProp", false,
               [] {
                 kernels::rmsprop_({weights()}, {weights()}, {}, {}, {weights()}, learning_rate(),
                                   {});
               }},
        Kernel{
            "Adagrad", false,
            [] { kernels::adagrad_({weights()}, {weights()}, {weights()}, learning_rate(), {}); }}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tensorpack
