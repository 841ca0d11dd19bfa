// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tensorpack {

/// Bytes as letters, digits, '+' and '/', padded with '=' (RFC 4648).
std::string encode_base64(std::string_view bytes);

}  // namespace tensorpack
