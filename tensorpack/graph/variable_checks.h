// SPDX-License-Identifier: Apache-2.0
// What get_variable() and its relatives refuse.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <string>

#include "tensorpack/graph/variable_store.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

/// A variable was created with another shape. A type of its own, because who knows the input
/// signature can say more.
class ShapeMismatch : public Error {
 public:
  using Error::Error;
};

/// Throws an Error, said to come from `where`, unless users may give this name to a variable or a
/// scope.
void check_variable_name(const char* where, const std::string& name);

/// Throws an Error unless the variable, which is asked for as `path`, has this shape and type.
void check_same_variable(const Variable& variable, const std::string& path, at::IntArrayRef shape,
                         c10::ScalarType dtype);

}  // namespace tensorpack
