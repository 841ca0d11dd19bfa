// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/variable_checks.h"

#include <fmt/ranges.h>

namespace tensorpack {

// Names of replicas start with "tower<i>/", so the word must not occur in names users choose.
void check_variable_name(const char* where, const std::string& name) {
  TP_CHECK(!name.empty() && name.front() != '/' && name.back() != '/', where,
           "'{}' is not a name. Use letters, digits, '_' and '/' inside.", name);
  TP_CHECK(name.find("tower") == std::string::npos, where,
           "the name '{}' contains the reserved word 'tower'. Rename it.", name);
}

void check_same_variable(const Variable& variable, const std::string& path, at::IntArrayRef shape,
                         c10::ScalarType dtype) {
  if (variable.tensor.sizes() != shape) {
    throw ShapeMismatch(fmt::format(
        "[get_variable] '{}' was created with shape [{}] and is now asked for with shape [{}]. Use "
        "the same shape, or another name.",
        path, fmt::join(variable.tensor.sizes(), ", "), fmt::join(shape, ", ")));
  }
  TP_CHECK(variable.tensor.scalar_type() == dtype, "get_variable",
           "'{}' was created as {} and is now asked for as {}. Use the same dtype.", path,
           c10::toString(variable.tensor.scalar_type()), c10::toString(dtype));
}

}  // namespace tensorpack
