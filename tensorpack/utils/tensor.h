// SPDX-License-Identifier: Apache-2.0
// libtorch's tensors. Headers include them from here: libtorch uses its IValue in templates before
// the type is complete, which clang 14 refuses.
#pragma once

#ifdef __clang__
#include <ATen/core/ivalue.h>
#endif
#include <ATen/core/Tensor.h>
