// SPDX-License-Identifier: Apache-2.0
// What normalisations begin with, batch norm as an activation, and batch renormalisation.
#include <ATen/ATen.h>

#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/nonlinear.h"
#include "tensorpack/models/norm.h"
#include "tests/models/fixture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

TEST_F(LayersTest, NormsBeginWithTheGammaAndBetaAskedFor) {
  train();
  const at::Tensor x = at::randn({4, 6, 5, 5});
  const auto beta = init::constant(0.5);
  const auto gamma = init::constant(2);
  BatchNorm("batch", x, {.beta_init = beta, .gamma_init = gamma});
  BatchRenorm("renorm", x, {.rmax = 3, .dmax = 5, .beta_init = beta, .gamma_init = gamma});
  LayerNorm("layer", x, {.beta_init = beta, .gamma_init = gamma});
  InstanceNorm("instance", x, {.beta_init = beta, .gamma_init = gamma});
  GroupNorm("group", x, {.groups = 3, .beta_init = beta, .gamma_init = gamma});
  for (const std::string name : {"batch", "renorm", "layer", "instance", "group"}) {
    EXPECT_TRUE(at::equal(variable(name + "/beta"), at::full({6}, 0.5))) << name;
    EXPECT_TRUE(at::equal(variable(name + "/gamma"), at::full({6}, 2.))) << name;
  }
}

TEST_F(LayersTest, BatchNormWithReluIsAnActivation) {
  train();
  const at::Tensor x = at::randn({2, 3, 8, 8});
  const at::Tensor y = Conv2D("conv0", x, {.filters = 4, .kernel_size = 3, .activation = BNReLU});
  EXPECT_TRUE(has_variable("conv0/bn/gamma"));
  EXPECT_TRUE(has_variable("conv0/bn/mean/EMA"));
  EXPECT_GE(y.min().item<float>(), 0);
  EXPECT_NEAR(y.var().item<double>(), 0.34, 0.1);  // of half a normal distribution
}

TEST_F(LayersTest, BNReLUWithoutANameIsTheScopesOwn) {
  train();
  const at::Tensor x = at::randn({8, 3});
  at::Tensor unnamed;
  {
    const VariableScope scope("block");
    unnamed = BNReLU(x);
  }
  EXPECT_TRUE(has_variable("block/bn/beta"));
  EXPECT_TRUE(at::equal(unnamed, BNReLU("named", x)));
  EXPECT_TRUE(has_variable("named/bn/beta"));
}

TEST_F(LayersTest, ArgScopeReachesDropoutAndPReLU) {
  train();
  const ArgScope dropout(DropoutOptions{.rate = 0, .training = true});
  const ArgScope prelu(PReLUOptions{.init = 0.25});
  const at::Tensor x = at::full({100}, -1.);
  EXPECT_TRUE(at::equal(Dropout("kept", x), x));
  EXPECT_FALSE(at::equal(Dropout("dropped", x, {.rate = 0.5}), x));
  EXPECT_TRUE(at::equal(PReLU("prelu", x), x / 4));
}

TEST_F(LayersTest, BatchRenormWithoutCorrectionIsBatchNorm) {
  train();
  const at::Tensor x = at::randn({16, 3, 4, 4}) * 2 + 1;
  const at::Tensor y = BatchRenorm("renorm", x, {.rmax = 1, .dmax = 0});
  EXPECT_TRUE(at::allclose(y, BatchNorm("norm", x), 1e-4, 1e-5));
  for (const std::string name : {"/mean/EMA", "/variance/EMA"}) {
    EXPECT_TRUE(at::allclose(variable("renorm" + name), variable("norm" + name))) << name;
  }
}

TEST_F(LayersTest, BatchRenormWithinItsLimitsNormalisesAsInPrediction) {
  train();
  const at::Tensor x = at::randn({16, 3});
  const BatchRenormOptions options{.rmax = 100, .dmax = 100, .momentum = 1};
  BatchRenorm("bn", x, options);
  {
    at::NoGradGuard no_grad;
    variable("bn/mean/EMA").fill_(0.5);
    variable("bn/variance/EMA").fill_(4);
    variable("bn/gamma").fill_(3);
    variable("bn/beta").fill_(-1);
  }
  train();
  const at::Tensor y = BatchRenorm("bn", x, options);
  EXPECT_TRUE(at::allclose(y, (x - 0.5) / 2 * 3 - 1, 1e-3, 1e-4));
  predict();
  EXPECT_TRUE(at::allclose(BatchRenorm("bn", x, options), y, 1e-3, 1e-4));
}

TEST_F(LayersTest, BatchRenormCorrectsNoFurtherThanItsLimits) {
  train();
  const at::Tensor x = at::randn({64, 2}) * 10 + 100;  // moving statistics are still 0 and 1
  const at::Tensor y = BatchRenorm("bn", x, {.rmax = 2, .dmax = 3});
  EXPECT_TRUE(at::allclose(y.mean(0), at::full({2}, 3.), 1e-3, 1e-3));
  EXPECT_TRUE(at::allclose(y.std(0, /*unbiased=*/false), at::full({2}, 2.), 1e-3, 1e-3));
}

TEST_F(LayersTest, BatchRenormSaysWhichLimitsItNeeds) {
  train();
  const at::Tensor x = at::randn({4, 2});
  EXPECT_ERROR(BatchRenorm("a", x, {.dmax = 1}), "[BatchRenorm 'a'] rmax is 0 and dmax 1. Set");
  EXPECT_ERROR(BatchRenorm("b", x, {.rmax = 0.5, .dmax = 1}), "rmax is 0.5");
  EXPECT_ERROR(BatchRenorm("c", x[0], {.rmax = 1, .dmax = 1}), "[BatchRenorm 'c']");
}

}  // namespace
}  // namespace tensorpack::test
