// SPDX-License-Identifier: Apache-2.0
// What a program trains, as lines that tell it from a changed one.
#pragma once

#include <string>
#include <vector>

namespace tensorpack {

/// A part of a fingerprint: lines about one thing, such as the operators of a step.
struct FingerprintPart {
  std::string name = {};
  std::vector<std::string> lines = {};
  /// What the lines depend on that is no part of the program, such as the version of libtorch. Two
  /// parts are compared only if it is the same.
  std::string under = {};
  /// Whether a longer list that begins with a shorter one is no difference: a schedule goes on when
  /// more epochs are asked for.
  bool may_grow = false;

  bool operator==(const FingerprintPart&) const = default;
};

/// Lines of the form `name = value`, and others, by part. A checkpoint has that of the program that
/// saved it; see AutoResumeOptions::same_program.
struct Fingerprint {
  std::vector<FingerprintPart> parts = {};

  bool empty() const { return parts.empty(); }
  bool operator==(const Fingerprint&) const = default;
};

/// As JSON.
std::string to_text(const Fingerprint& fingerprint);
/// Throws Error for what to_text() did not write.
Fingerprint parse_fingerprint(const std::string& text);

/// What differs, a line for each thing: "learning_rate was 0.1, is 0.01". A line that is only in
/// another place is no difference, unless nothing else is.
std::vector<std::string> differences(const Fingerprint& before, const Fingerprint& now);

}  // namespace tensorpack
