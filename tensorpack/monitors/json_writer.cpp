// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/json_writer.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "tensorpack/monitors/earlier_files.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFileName = "stats.json";
constexpr std::string_view kEnd = "\n]";

std::string dump(const json& object) {
  return object.dump(-1, ' ', false, json::error_handler_t::replace);  // names may not be UTF-8
}

// One object per line, so that a write which was cut off damages the last line alone.
std::string to_text(const json& list) {
  std::string text = "[";
  for (const json& object : list) {
    text += text.size() > 1 ? ",\n" : "\n";
    text += dump(object);
  }
  return text.append(kEnd);
}

// Nothing for what is not a list. A file that others wrote may be nested so deep that writing it
// again would overflow the stack: that is no list of ours either.
std::optional<json> parse_list(const std::string& text) {
  constexpr int kMaxDepth = 16;
  struct TooDeep {};
  const auto check_depth = [](int depth, json::parse_event_t, json&) {
    if (depth > kMaxDepth) throw TooDeep();
    return true;
  };
  try {
    json list = json::parse(text, check_depth, /*allow_exceptions=*/false);
    if (!list.is_array()) return std::nullopt;
    return list;
  } catch (const TooDeep&) {
    return std::nullopt;
  }
}

void strip_end(std::string& text) { text.resize(text.find_last_not_of(" \n\r,") + 1); }

struct Statistics {
  std::optional<json> list = {};
  bool was_cut_off = false;
};

// The list that `text` holds, or held before it was cut off.
Statistics recover_list(std::string text) {
  if (auto list = parse_list(text)) return {std::move(list)};
  strip_end(text);
  if (auto list = parse_list(text + "]")) return {std::move(list), true};
  text.resize(std::min(text.size(), text.rfind('\n')));
  strip_end(text);
  return {parse_list(text + "]"), true};
}

Statistics load_statistics(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  try {
    return recover_list(read_file(path));
  } catch (const Error& error) {
    logging::warning("{}", error.what());
    return {};
  }
}

// What the writer goes on from: says so where rows are lost.
std::optional<json> list_to_continue(const fs::path& path) {
  Statistics found = load_statistics(path);
  if (found.list && found.was_cut_off) {
    const json last = found.list->empty() ? json() : found.list->back();
    logging::warning(
        "[JSONWriter] '{}' was cut off: {}. What came after that is lost. Was the disk full?",
        path.string(),
        last.is_object() ? fmt::format("its last whole row is of step {} in epoch {}",
                                       dump(last.value("global_step", json())),
                                       dump(last.value("epoch_num", json())))
                         : "it has no whole row");
  }
  return std::move(found.list);
}

std::optional<int64_t> last_epoch(const std::optional<json>& list) {
  if (!list || list->empty() || !list->back().is_object()) return std::nullopt;
  const json epoch = list->back().value("epoch_num", json());
  if (!epoch.is_number_integer()) return std::nullopt;
  return epoch.get<int64_t>();
}

// Whether the file ends as this class ends it, after at least one object.
bool ends_well(std::fstream& file) {
  char end[3] = {};
  file.seekg(-3, std::ios::end);
  return file.read(end, 3) && std::string_view(end, 3) == "}\n]";
}

void append(const fs::path& path, const json& object) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  if (!file || !ends_well(file)) {  // new, cut off, or written by others
    std::optional<json> list = list_to_continue(path);
    if (!list && file.is_open() && fs::file_size(path) > 0) {
      logging::warning("[JSONWriter] '{}' is no list any more: moved to '{}'.", path.string(),
                       move_away(path).string());
    }
    if (!list) list = json::array();
    list->push_back(object);
    write_file_atomically(path, to_text(*list));
    return;
  }
  file.seekp(-static_cast<std::streamoff>(kEnd.size()), std::ios::end);
  file << ",\n" << dump(object) << kEnd << std::flush;
  TP_CHECK(file.good(), "JSONWriter", "'{}' cannot be written. Is the disk full?", path.string());
}

// What a list has of the steps up to where a resumed training goes on; nothing when it cannot be a
// list of that training.
std::optional<json> rows_before(const json& list, const LoopState& loop) {
  json rows = json::array();
  for (const json& row : list) {
    const auto number = [&row](const char* key) {
      const json value = row.is_object() ? row.value(key, json()) : json();
      return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
    };
    const auto epoch = number("epoch_num");
    const auto step = number("global_step");
    if (!epoch || !step) return std::nullopt;
    if (*step > loop.global_step) continue;
    if (*epoch > loop.starting_epoch) return std::nullopt;
    rows.push_back(row);
  }
  if (rows.empty()) return std::nullopt;
  return rows;
}

fs::path stats_file(const std::optional<fs::path>& dir) {
  const std::optional<fs::path> found = dir ? dir : get_logger_dir();
  return found ? *found / kFileName : fs::path();
}

}  // namespace

std::optional<std::vector<JSONWriter::Row>> JSONWriter::load_existing_json(
    const std::optional<fs::path>& dir) {
  const std::optional<json> list = load_statistics(stats_file(dir)).list;
  if (!list) return std::nullopt;
  std::vector<Row> rows;
  for (const json& object : *list) {
    Row& row = rows.emplace_back();
    if (!object.is_object()) continue;
    for (const auto& [name, value] : object.items()) {
      if (value.is_number()) row[name] = value.get<double>();
      if (value.is_null()) row[name] = std::numeric_limits<double>::quiet_NaN();
    }
  }
  return rows;
}

std::optional<int64_t> JSONWriter::load_existing_epoch_number(const std::optional<fs::path>& dir) {
  return last_epoch(load_statistics(stats_file(dir)).list);
}

JSONWriter::JSONWriter(JSONWriterOptions options) : options_(std::move(options)) {}

void JSONWriter::process_scalar(const std::string& name, double value, const LoopState&) {
  unwritten_[name] = value;
}

void JSONWriter::before_train(const LoopState& loop) {
  failed_ = false;
  path_ = options_.path.empty() ? stats_file({}) : options_.path;
  if (path_.empty()) {
    logging::warning(
        "[JSONWriter] there is no log directory: statistics are not saved. Call "
        "set_logger_dir() first.");
    return;
  }
  try {
    if (fs::exists(path_)) continue_or_move(loop);
  } catch (const std::exception& error) {
    logging::error("[JSONWriter] {}. Statistics are not saved.", error.what());
    path_.clear();
  }
  write(loop);  // what before_train() of the callbacks reported
}

void JSONWriter::continue_or_move(const LoopState& loop) {
  const std::optional<json> list = list_to_continue(path_);
  if (list && list->empty()) return;
  const std::optional<int64_t> epoch = last_epoch(list);
  if (epoch != loop.starting_epoch - 1 && !cut_back(list, loop)) {
    logging::warning(
        "[JSONWriter] '{}' ends with epoch {}, but training starts with epoch {}: moved to '{}'. "
        "To continue a training, resume from its checkpoint or set starting_epoch.",
        path_.string(), epoch ? std::to_string(*epoch) : "unknown", loop.starting_epoch,
        move_away(path_).string());
    return;
  }
  logging::info("Found the statistics of earlier epochs in '{}', will append to them.",
                path_.string());
}

// What was reported after the checkpoint will be reported again.
bool JSONWriter::cut_back(const std::optional<json>& list, const LoopState& loop) {
  if (!list || loop.global_step == 0) return false;
  const std::optional<json> rows = rows_before(*list, loop);
  if (!rows) return false;
  if (rows->size() < list->size()) {
    logging::info("Removed {} of '{}' of steps after {}, which are made again.",
                  counted(std::ssize(*list) - std::ssize(*rows), "row"), path_.string(),
                  loop.global_step);
    write_file_atomically(path_, to_text(*rows));
  }
  return true;
}

void JSONWriter::trigger_step(const LoopState& loop) {
  if (!loop.is_last_step_of_epoch()) write(loop);  // else together with trigger_epoch()
}

void JSONWriter::flush() {
  if (!path_.empty()) sync_file(path_);
}

void JSONWriter::write(const LoopState& loop) {
  if (unwritten_.empty()) return;
  json object(std::exchange(unwritten_, {}));
  object["epoch_num"] = loop.epoch_num;
  object["global_step"] = loop.global_step;
  if (path_.empty()) return;
  try {
    append(path_, object);
  } catch (const std::exception& error) {
    if (!std::exchange(failed_, true)) logging::error("{} Training goes on.", error.what());
  }
}

}  // namespace tensorpack
