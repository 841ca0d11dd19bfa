// SPDX-License-Identifier: Apache-2.0
// Where the time of a step goes, kernel by kernel.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace tensorpack::bench {

/// How many steps a profile covers.
inline constexpr int kProfiledSteps = 5;

/// Writes a trace, in Chrome's format, of what the device does in `work`.
void write_trace(const std::filesystem::path& path, const std::function<void()>& work);

/// The kernels of a trace, the longest first: microseconds and launches a step, and the name.
std::string kernel_table(const std::filesystem::path& trace, size_t rows = 30);

}  // namespace tensorpack::bench
