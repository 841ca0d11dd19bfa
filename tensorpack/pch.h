// SPDX-License-Identifier: Apache-2.0
// Precompiled for every file of the library that uses libtorch. Sources still include what they
// use.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>
