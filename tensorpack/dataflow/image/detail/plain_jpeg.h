// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace tensorpack::detail {

/// Whether bytes are a whole JPEG of the kind that every decoder knows and cameras write: baseline,
/// 8 bits, YCbCr, colours shared by at most 2 x 2 pixels, one scan that reaches the end mark.
///
/// Looks at the markers and for the end of the scan, not at what is coded in it.
bool is_plain_jpeg(std::string_view bytes);

}  // namespace tensorpack::detail
