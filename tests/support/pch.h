// SPDX-License-Identifier: Apache-2.0
// Precompiled for every test. Tests still include what they use.
#pragma once

#include <gmock/gmock.h>

#include "tensorpack/pch.h"
#include "tensorpack/tensorpack.h"
