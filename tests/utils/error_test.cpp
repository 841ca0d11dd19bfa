// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/error.h"

#include <gmock/gmock.h>

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::StrEq;
using testing::ThrowsMessage;

TEST(ErrorTest, CheckThrowsPlaceAndText) {
  const int size = 0;
  EXPECT_THAT([&] { TP_CHECK(size > 0, "batch", "must be positive, got {}. Pass 1.", size); },
              ThrowsMessage<Error>(StrEq("[batch] must be positive, got 0. Pass 1.")));
}

TEST(ErrorTest, CheckThatHoldsDoesNotEvaluateItsText) {
  int evaluated = 0;
  TP_CHECK(true, "here", "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

TEST(ErrorTest, AssertThrowsTheConditionAndItsPlace) {
  EXPECT_THAT([] { TP_ASSERT(1 + 1 == 3); },
              ThrowsMessage<InternalError>(HasSubstr("'1 + 1 == 3' does not hold")));
  EXPECT_THAT([] { TP_ASSERT(false); }, ThrowsMessage<InternalError>(HasSubstr("error_test.cpp:")));
}

}  // namespace
}  // namespace tensorpack
