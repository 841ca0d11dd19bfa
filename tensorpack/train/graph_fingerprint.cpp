// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/graph_fingerprint.h"

#include <torch/version.h>

#include <algorithm>

#include "tensorpack/parallel/graph_lines.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

using Lines = std::vector<std::string>;

Lines variable_lines(const Graph& graph, size_t count) {
  Lines lines;
  for (const Variable& variable : graph.variables().all()) {
    if (count-- == 0) break;
    if (variable.is_saved()) lines.push_back(describe_variable(variable));
  }
  return lines;
}

// Of names that end in it, before a quotation mark.
void leave_out_first_tower(std::string& line) {
  constexpr std::string_view kTower = "/tower0";
  for (size_t at = 0; (at = line.find("/tower0'", at)) != std::string::npos;) {
    line.erase(at, kTower.size());
  }
}

// Values of a trace go by numbers, "%12": one operator more changes those of all that come later.
void leave_out_numbers(std::string& line) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t at = 0; (at = line.find('%', at)) != std::string::npos; ++at) {
    const auto begin = line.begin() + static_cast<std::ptrdiff_t>(at) + 1;
    line.erase(begin, std::find_if_not(begin, line.end(), is_digit));
  }
}

// As one tower alone would record them, which exchanges nothing.
Lines operator_lines(const Op& op, Session& session) {
  Lines lines;
  try {
    lines = describe_nodes(op, session.trace(op));
  } catch (const std::exception& error) {
    logging::debug("Op '{}' is not compared when this training is resumed: {}", op.name(),
                   describe(error));
  }
  std::erase_if(lines, [](const std::string& line) {
    return line.find("tensorpack::exchange_") != std::string::npos;
  });
  for (std::string& line : lines) {
    leave_out_first_tower(line);
    leave_out_numbers(line);
  }
  return lines;
}

// Of very many lines, such as those of a loop over a thousand steps, a checkpoint has the first,
// and says whether the others are the same.
void shorten(Lines& lines) {
  constexpr size_t kMost = 10'000;
  if (lines.size() <= kMost) return;
  const Lines rest(lines.begin() + kMost, lines.end());
  lines.resize(kMost);
  lines.push_back(fmt::format("the operators after the first {} = {}, with checksum {:016x}", kMost,
                              rest.size(), xxh64(join(rest, "\n"))));
}

}  // namespace

std::vector<FingerprintPart> fingerprint_of_graph(Graph& graph, Session& session, size_t count) {
  Lines operators;
  for (const Op& op : graph.ops()) {
    const bool is_trained = static_cast<bool>(op.state().feeder);
    if (!is_trained || op.state().tower != 0) continue;
    for (std::string& line : operator_lines(op, session)) operators.push_back(std::move(line));
  }
  shorten(operators);
  const std::string device = c10::DeviceTypeName(graph.options().device.type(), /*lower=*/true);
  return {{.name = "model", .lines = variable_lines(graph, count)},
          {.name = "step",
           .lines = std::move(operators),
           .under = fmt::format("{}, libtorch {}, tensorpack {}", device, TORCH_VERSION,
                                TENSORPACK_VERSION)}};
}

}  // namespace tensorpack
