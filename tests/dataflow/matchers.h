// SPDX-License-Identifier: Apache-2.0
// The words in which tests of dataflows say what they expect.
#pragma once

#include <gmock/gmock.h>

#include "tests/support/throws.h"

namespace tensorpack::test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::ThrowsMessage;

}  // namespace tensorpack::test
