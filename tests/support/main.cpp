// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tensorpack/utils/seed.h"

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  tensorpack::set_global_seed(0);  // a test that fails, fails again
  return RUN_ALL_TESTS();
}
