// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/env.h"

#include <gmock/gmock.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using testing::Eq;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kName = "TENSORPACK_ENV_TEST";

TEST(EnvTest, EmptyMeansUnset) {
  EXPECT_EQ(env(kName), std::nullopt);
  const ScopedEnv empty(kName, "");
  EXPECT_EQ(env(kName), std::nullopt);
  EXPECT_EQ(env_int(kName), std::nullopt);
}

TEST(EnvTest, ReadsNumbers) {
  const ScopedEnv four(kName, "4");
  EXPECT_THAT(env_int(kName), Eq(4));
  const ScopedEnv half(kName, "0.5");
  EXPECT_THAT(env_double(kName), Eq(0.5));
}

TEST(EnvTest, RefusesWhatIsNoNumber) {
  const ScopedEnv four(kName, "4x");
  EXPECT_THAT([] { env_int(kName); },
              ThrowsMessage<Error>(HasSubstr("must be an integer, got '4x'")));
  EXPECT_THAT([] { env_double(kName); }, ThrowsMessage<Error>(HasSubstr("[TENSORPACK_ENV_TEST]")));
}

TEST(ScopedEnvTest, RestoresWhatWasThere) {
  const ScopedEnv outer(kName, "outer");
  {
    const ScopedEnv inner(kName, "inner");
    EXPECT_THAT(env(kName), Eq("inner"));
    const ScopedEnv unset(kName, std::nullopt);
    EXPECT_EQ(env(kName), std::nullopt);
  }
  EXPECT_THAT(env(kName), Eq("outer"));
}

}  // namespace
}  // namespace tensorpack
