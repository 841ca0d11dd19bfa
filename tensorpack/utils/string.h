// SPDX-License-Identifier: Apache-2.0
// Small texts: suggestions, lists, durations and sizes for messages; numbers read back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpack {

/// Joins `parts` with `separator` between them.
std::string join(const std::vector<std::string>& parts, std::string_view separator = ", ");

/// A number of things: "1 tensor", "3 tensors", "2 batches".
std::string counted(std::int64_t count, std::string_view noun);

/// Answers an unknown name: "Did you mean 'accuracy'? Known: accuracy, cost."
///
/// Without a name that is close enough only the known ones are listed, at most twelve of them.
/// When `known` is empty the answer is "There are none."
std::string did_you_mean(std::string_view name, const std::vector<std::string>& known);

/// Says a duration as people do: "1 minute 27 seconds", "0.01 seconds".
std::string humanize_time(double seconds);

/// Says a size in binary units: "512 B", "1.5 GiB".
std::string humanize_bytes(std::uint64_t bytes);

/// Bytes for a message: what is no ASCII that can be printed becomes "\x0a".
std::string printable(std::string_view bytes);

/// The integer that `text` is, as std::to_string() writes it; nothing for any other text.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// The number that `text` is, in decimal digits or as exact_text() writes it, with a point in every
/// locale; nothing for any other text.
std::optional<double> parse_number(std::string_view text);

/// A number as a text from which parse_exact_text() gives the very same one back, in every locale:
/// in hexadecimal digits, "0x1.8p+1" for 3. For files; messages have "{:.5g}".
std::string exact_text(double value);

/// The number that exact_text() wrote. Throws Error for what is no number.
double parse_exact_text(std::string_view text);

}  // namespace tensorpack
