// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tensorpack/utils/log_once.h"
#include "tensorpack/utils/seed.h"

namespace {

/// What a process is told once, each test is told once: they pass in any order, and repeated.
class TellAgain final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo&) override { tensorpack::logging::forget_logged_once(); }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new TellAgain);
  tensorpack::set_global_seed(0);  // a test that fails, fails again
  return RUN_ALL_TESTS();
}
