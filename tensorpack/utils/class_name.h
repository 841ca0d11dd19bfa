// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <typeinfo>

namespace tensorpack {

/// The name of a class as it is written, without namespaces.
std::string class_name(const std::type_info& type);

}  // namespace tensorpack
