// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/string.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>
#include <utility>

#include "tensorpack/utils/error.h"

namespace tensorpack {

namespace {

constexpr std::size_t kMostNamesListed = 12;

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Levenshtein's distance, one row at a time. A wrong case is half of what people mistype: free.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (lower(a[i]) != lower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string count_of(double value, std::string_view unit) {
  const std::string number = fmt::format("{:.3g}", value);
  return fmt::format("{} {}{}", number, unit, number == "1" ? "" : "s");
}

}  // namespace

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string counted(std::int64_t count, std::string_view noun) {
  if (count == 1) return fmt::format("1 {}", noun);
  const bool hisses = noun.ends_with('s') || noun.ends_with("ch");
  return fmt::format("{} {}{}", count, noun, hisses ? "es" : "s");
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  if (known.empty()) return "There are none.";
  const std::string* nearest = nullptr;
  std::size_t best = std::max<std::size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(name, candidate);
    // A name of which nothing is left is no suggestion.
    if (distance < best && distance < std::max(name.size(), candidate.size())) {
      best = distance;
      nearest = &candidate;
    }
  }
  const auto listed = std::min(known.size(), kMostNamesListed);
  return fmt::format(
      "{}Known: {}{}", nearest ? fmt::format("Did you mean '{}'? ", *nearest) : "",
      fmt::join(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(listed), ", "),
      listed < known.size() ? ", ..." : ".");
}

std::string humanize_time(double seconds) {
  if (!std::isfinite(seconds)) return "an unknown time";
  if (seconds < 0) return fmt::format("-{}", humanize_time(-seconds));
  // Three digits of 59.96 would read "60 seconds".
  if (seconds < 59.95) return count_of(seconds, "second");
  auto rest = static_cast<std::int64_t>(std::llround(seconds));
  std::vector<std::string> parts;
  constexpr std::array<std::pair<const char*, std::int64_t>, 4> kUnits{
      {{"day", 86400}, {"hour", 3600}, {"minute", 60}, {"second", 1}}};
  for (const auto& [unit, length] : kUnits) {
    const std::int64_t count = rest / length;
    rest %= length;
    if (count > 0) parts.push_back(counted(count, unit));
  }
  return join(parts, " ");
}

std::string humanize_bytes(std::uint64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.4g} {}", value, kUnits[unit]);
}

std::string printable(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    if (byte >= ' ' && byte <= '~') {
      text += byte;
    } else {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
  }
  return text;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  const std::string_view digits = text.substr(is_negative ? 1 : 0);
  const bool is_hex = digits.starts_with("0x");
  const std::string_view number = is_hex ? digits.substr(2) : digits;
  if (number.starts_with('-')) return std::nullopt;
  double value = 0;
  const char* end = number.data() + number.size();
  const auto format = is_hex ? std::chars_format::hex : std::chars_format::general;
  const auto [stop, error] = std::from_chars(number.data(), end, value, format);
  if (error != std::errc() || stop != end) return std::nullopt;
  return is_negative ? -value : value;
}

std::string exact_text(double value) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  std::array<char, 32> digits;
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(),
                                          std::abs(value), std::chars_format::hex);
  return fmt::format("{}0x{}", std::signbit(value) ? "-" : "",
                     std::string_view(digits.data(), static_cast<size_t>(end - digits.data())));
}

double parse_exact_text(std::string_view text) {
  std::string with_point(text);  // earlier versions wrote "0x1,8p+1" under a decimal comma
  std::replace(with_point.begin(), with_point.end(), ',', '.');
  const std::optional<double> value = parse_number(with_point);
  if (!value) throw Error(fmt::format("'{}' is no number.", text));
  return *value;
}

}  // namespace tensorpack
