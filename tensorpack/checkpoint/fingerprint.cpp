// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using Lines = std::vector<std::string>;

constexpr std::string_view kEquals = " = ";

// What a line is about: the name before the sign, or nothing.
std::string subject_of(const std::string& line) {
  const size_t sign = line.find(kEquals);
  return sign == std::string::npos ? "" : line.substr(0, sign);
}

std::string value_of(const std::string& line) {
  return line.substr(line.find(kEquals) + kEquals.size());
}

// The lines that `other` does not have, each as often as it lacks it.
Lines missing_in(const Lines& other, const Lines& lines) {
  std::map<std::string, int> there;
  for (const std::string& line : other) ++there[line];
  Lines missing;
  for (const std::string& line : lines) {
    if (--there[line] < 0) missing.push_back(line);
  }
  return missing;
}

std::string in_part(const FingerprintPart& part) {
  return part.name.empty() ? "" : part.name + ": ";
}

// Takes the line that `line` became: of the same subject, or, without subjects, the next one.
std::string take_successor(const std::string& line, Lines& added) {
  const std::string subject = subject_of(line);
  const auto found = std::find_if(added.begin(), added.end(), [&](const std::string& candidate) {
    return subject_of(candidate) == subject;
  });
  if (found == added.end()) return "";
  std::string successor = std::move(*found);
  added.erase(found);
  return successor;
}

std::string changed(const FingerprintPart& part, const std::string& from, const std::string& to) {
  const std::string subject = subject_of(from);
  if (subject.empty()) return fmt::format("{}was '{}', is '{}'", in_part(part), from, to);
  return fmt::format("{}{} was {}, is {}", in_part(part), subject, value_of(from), value_of(to));
}

std::string first_moved(const FingerprintPart& part, const Lines& before, const Lines& now) {
  const auto [was, is] = std::mismatch(before.begin(), before.end(), now.begin());
  return fmt::format("{}in another order, from '{}' on, where '{}' was", in_part(part), *is, *was);
}

void add_differences(const FingerprintPart& part, const Lines& before, const Lines& now,
                     Lines& differences) {
  if (before == now) return;
  const Lines gone = missing_in(now, before);
  Lines added = missing_in(before, now);
  // As many as before: each became another. Else what is new says most.
  const bool are_pairs = gone.size() == added.size();
  Lines left;
  for (const std::string& line : gone) {
    const bool has_subject = !subject_of(line).empty();
    const std::string to = are_pairs || has_subject ? take_successor(line, added) : "";
    if (to.empty()) {
      left.push_back(line);
    } else {
      differences.push_back(changed(part, line, to));
    }
  }
  for (const std::string& line : added) {
    differences.push_back(fmt::format("{}new is '{}'", in_part(part), line));
  }
  for (const std::string& line : left) {
    differences.push_back(fmt::format("{}gone is '{}'", in_part(part), line));
  }
  if (gone.empty() && added.empty()) differences.push_back(first_moved(part, before, now));
}

const FingerprintPart* find(const Fingerprint& fingerprint, const std::string& name) {
  const auto found = std::find_if(fingerprint.parts.begin(), fingerprint.parts.end(),
                                  [&](const FingerprintPart& part) { return part.name == name; });
  return found == fingerprint.parts.end() ? nullptr : &*found;
}

// The first lines, as many as both have.
void cut_to_common_length(Lines& a, Lines& b) {
  const size_t common = std::min(a.size(), b.size());
  if (common == 0) return;  // one of them has nothing of it
  a.resize(common);
  b.resize(common);
}

}  // namespace

std::string to_text(const Fingerprint& fingerprint) {
  nlohmann::ordered_json parts = nlohmann::json::array();
  for (const FingerprintPart& part : fingerprint.parts) {
    nlohmann::ordered_json& json = parts.emplace_back();
    json = {{"name", part.name}, {"lines", part.lines}};
    if (!part.under.empty()) json["under"] = part.under;
    if (part.may_grow) json["may_grow"] = true;
  }
  // A line may have a part of a text that is no UTF-8.
  return parts.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Fingerprint parse_fingerprint(const std::string& text) {
  try {
    Fingerprint fingerprint;
    for (const auto& json : nlohmann::json::parse(text)) {
      fingerprint.parts.push_back({.name = json.at("name").get<std::string>(),
                                   .lines = json.at("lines").get<Lines>(),
                                   .under = json.value("under", ""),
                                   .may_grow = json.value("may_grow", false)});
    }
    return fingerprint;
  } catch (const nlohmann::json::exception& error) {
    throw make_error("parse_fingerprint", "the text is no fingerprint of a program: {}.",
                     error.what());
  }
}

Lines differences(const Fingerprint& before, const Fingerprint& now) {
  Lines all;
  const auto compare = [&](FingerprintPart was, FingerprintPart is) {
    if (was.under != is.under) return;
    if (was.may_grow && is.may_grow) cut_to_common_length(was.lines, is.lines);
    add_differences(is, was.lines, is.lines, all);
  };
  for (const FingerprintPart& part : now.parts) {
    const FingerprintPart* was = find(before, part.name);
    compare(was ? *was : FingerprintPart{.name = part.name, .under = part.under}, part);
  }
  for (const FingerprintPart& part : before.parts) {
    if (find(now, part.name)) continue;
    compare(part, {.name = part.name, .under = part.under});
  }
  return all;
}

}  // namespace tensorpack
