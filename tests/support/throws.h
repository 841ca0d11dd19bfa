// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>

#include "tensorpack/utils/error.h"

/// Expects `statement` to throw an Error whose text contains `part`.
#define EXPECT_ERROR(statement, part)     \
  EXPECT_THAT([&] { (void)(statement); }, \
              testing::ThrowsMessage<::tensorpack::Error>(testing::HasSubstr(part)))
