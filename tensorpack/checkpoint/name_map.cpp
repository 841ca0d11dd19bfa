// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/name_map.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/regex.h"

namespace tensorpack {
namespace {

constexpr const char* kWhere = "NameMap";

at::Tensor swap(const std::string& name, const at::Tensor& tensor, bool transposed) {
  if (!transposed) return tensor;
  TP_CHECK(tensor.dim() >= 2, kWhere,
           "'{}' has the shape [{}] and cannot be transposed. Correct its rule.", name,
           fmt::join(tensor.sizes(), ", "));
  return tensor.transpose(0, 1).contiguous();
}

at::Tensor part_of(const std::string& name, const at::Tensor& whole, const ForeignLayout& layout) {
  if (layout.parts == 1) return whole;
  TP_CHECK(whole.dim() >= 1 && whole.size(0) % layout.parts == 0, kWhere,
           "'{}' has the shape [{}] and cannot be divided into {} parts. Correct its rule.", name,
           fmt::join(whole.sizes(), ", "), layout.parts);
  const int64_t size = whole.size(0) / layout.parts;
  return whole.narrow(0, layout.part * size, size).contiguous();
}

// The parts of ours that make one tensor of theirs.
struct Parts {
  std::vector<std::string> names;  // of ours
  std::vector<at::Tensor> tensors;
  bool transposed = false;
};

void add_part(const std::string& ours, const at::Tensor& tensor, const ForeignTensor& place,
              std::map<std::string, Parts>& wholes) {
  Parts& whole = wholes[place.name];
  const auto parts = static_cast<size_t>(place.layout.parts);
  const auto part = static_cast<size_t>(place.layout.part);
  if (whole.names.empty()) {
    whole = {std::vector<std::string>(parts), std::vector<at::Tensor>(parts),
             place.layout.transposed};
  }
  TP_CHECK(whole.names.size() == parts && whole.transposed == place.layout.transposed &&
               whole.names[part].empty(),
           kWhere, "'{}' and '{}' would both be written as '{}'. Correct their rules.",
           fmt::join(whole.names, ""), ours, place.name);
  whole.names[part] = ours;
  whole.tensors[part] = tensor;
}

at::Tensor join_parts(const std::string& name, const Parts& whole) {
  for (size_t i = 0; i < whole.names.size(); ++i) {
    TP_CHECK(!whole.names[i].empty(), kWhere,
             "part {} of the {} that make '{}' is missing. Correct the rules.", i,
             whole.names.size(), name);
  }
  const at::Tensor joined = whole.tensors.size() == 1 ? whole.tensors[0] : at::cat(whole.tensors);
  return swap(name, joined, whole.transposed);
}

// The words behind a rule: [transposed] [part 0 of 3].
std::optional<ForeignLayout> parse_layout(std::istream& words) {
  ForeignLayout layout;
  std::string word;
  while (words >> word) {
    std::string of;
    if (word == "transposed") {
      layout.transposed = true;
    } else if (word == "part" && words >> layout.part >> of >> layout.parts && of == "of") {
      if (layout.part < 0 || layout.part >= layout.parts) return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return layout;
}

// Whether the line could be understood.
bool parse_line(const std::string& line, NameMap& map) {
  std::istringstream words(line);
  std::string first, arrow, replacement;
  if (!(words >> first) || first.starts_with("#")) return true;
  if (first == "ignore") return static_cast<bool>(words >> map.ignored.emplace_back());
  if (!(words >> arrow >> replacement) || arrow != "->") return false;
  const auto layout = parse_layout(words);
  if (layout) map.rules.push_back({first, replacement == "\"\"" ? "" : replacement, *layout});
  return layout.has_value();
}

}  // namespace

ForeignTensor NameMap::operator()(const std::string& ours) const {
  ForeignTensor tensor{.name = ours};
  for (const NameRule& rule : rules) {
    const std::regex pattern = compile_regex(kWhere, rule.pattern);
    if (!std::regex_search(tensor.name, pattern)) continue;
    tensor.name = std::regex_replace(tensor.name, pattern, rule.replacement);
    if (rule.layout == ForeignLayout()) continue;
    TP_CHECK(tensor.layout == ForeignLayout(), kWhere,
             "two rules say how '{}' lies in the file; the second is '{}'. Leave one of them.",
             ours, rule.pattern);
    tensor.layout = rule.layout;
  }
  return tensor;
}

NameMap without_prefix(const std::string& prefix) {
  static const std::regex special(R"([.^$|()\[\]{}*+?\\])");
  const std::string literal = std::regex_replace(prefix, special, R"(\$&)");
  return {.rules = {{fmt::format("^{}/", literal), ""}}};
}

FromForeign from_foreign(const NameMap& map, const NamedTensors& theirs,
                         const std::vector<std::string>& names) {
  FromForeign result;
  std::set<std::string> used;
  for (const std::string& ours : names) {
    const ForeignTensor place = map(ours);
    const auto found = theirs.find(place.name);
    if (found == theirs.end()) continue;
    used.insert(place.name);
    const at::Tensor whole = swap(place.name, found->second, place.layout.transposed);
    result.ours.emplace(ours, part_of(place.name, whole, place.layout));
  }
  std::vector<std::regex> ignored;
  for (const std::string& pattern : map.ignored) ignored.push_back(compile_regex(kWhere, pattern));
  for (const auto& [name, tensor] : theirs) {
    if (!used.contains(name) && !matches_any(name, ignored)) result.unused.push_back(name);
  }
  return result;
}

NamedTensors to_foreign(const NameMap& map, const NamedTensors& ours) {
  std::map<std::string, Parts> wholes;
  for (const auto& [name, tensor] : ours) add_part(name, tensor, map(name), wholes);
  NamedTensors theirs;
  for (const auto& [name, whole] : wholes) theirs.emplace(name, join_parts(name, whole));
  return theirs;
}

NameMap read_name_map(const std::filesystem::path& path) {
  NameMap map;
  std::istringstream lines(read_file(path));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    TP_CHECK(parse_line(line, map), kWhere,
             "line {} of '{}' is no rule: '{}'. Write 'pattern -> replacement', with 'transposed' "
             "or 'part 0 of 3' behind it if need be, or 'ignore pattern'.",
             number, path.string(), line);
  }
  return map;
}

}  // namespace tensorpack
