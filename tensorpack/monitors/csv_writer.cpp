// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/csv_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "tensorpack/monitors/earlier_files.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

using Row = std::vector<std::string>;

const Row kFirstColumns = {"epoch_num", "global_step"};

// In quotes where they are needed.
std::string to_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) cell.append(c == '"' ? 2 : 1, c);
  return cell + "\"";
}

std::string to_line(const Row& row) {
  std::vector<std::string> cells;
  for (const std::string& text : row) cells.push_back(to_cell(text));
  return join(cells, ",") + "\n";
}

// Rows without an end of line are left out: they were cut off.
std::vector<Row> parse(const std::string& text) {
  std::vector<Row> rows;
  Row row(1);
  bool is_quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"' && is_quoted && i + 1 < text.size() && text[i + 1] == '"') {
      row.back().push_back(text[++i]);
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      row.emplace_back();
    } else if (c == '\n' && !is_quoted) {
      rows.push_back(std::exchange(row, Row(1)));
    } else if (c != '\r' || is_quoted) {
      row.back().push_back(c);
    }
  }
  return rows;
}

bool is_table_of_ours(const std::vector<Row>& rows) {
  return !rows.empty() && rows[0].size() >= kFirstColumns.size() &&
         std::equal(kFirstColumns.begin(), kFirstColumns.end(), rows[0].begin());
}

void write_rows(const fs::path& path, std::vector<Row> rows) {
  std::string text;
  for (Row& row : rows) {
    row.resize(rows[0].size());
    text += to_line(row);
  }
  write_file_atomically(path, text);
}

}  // namespace

CSVWriter::CSVWriter(CSVWriterOptions options) : options_(std::move(options)) {}

void CSVWriter::process_scalar(const std::string& name, double value, const LoopState&) {
  unwritten_[name] = value;
}

void CSVWriter::before_train(const LoopState& loop) {
  failed_ = false;
  columns_ = {};
  path_ =
      options_.path.empty() && get_logger_dir() ? *get_logger_dir() / "stats.csv" : options_.path;
  if (path_.empty()) {
    logging::warning(
        "[CSVWriter] there is no log directory: statistics are not saved. Call set_logger_dir() "
        "first.");
    return;
  }
  try {
    if (fs::exists(path_)) take_up_file(loop);
  } catch (const std::exception& error) {
    logging::error("[CSVWriter] {}. Statistics are not saved.", error.what());
    path_.clear();
  }
  write(loop);  // what before_train() of the callbacks reported
}

void CSVWriter::take_up_file(const LoopState& loop) {
  std::vector<Row> rows = parse(read_file(path_));
  if (!loop.is_resumed() || !is_table_of_ours(rows)) {
    logging::warning("[CSVWriter] '{}' is not of this training: moved to '{}'.", path_.string(),
                     move_away(path_).string());
    return;
  }
  const auto is_made_again = [&](const Row& row) {
    if (&row == &rows[0]) return false;
    const auto step = row.size() > 1 ? parse_integer(row[1]) : std::nullopt;
    return !step || *step > loop.global_step;
  };
  std::vector<Row> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept),
               [&](const Row& row) { return !is_made_again(row); });
  write_rows(path_, kept);
  columns_ = kept[0];
}

void CSVWriter::trigger_step(const LoopState& loop) {
  if (!loop.is_last_step_of_epoch()) write(loop);  // else together with trigger_epoch()
}

void CSVWriter::flush() {
  if (!path_.empty()) sync_file(path_);
}

// Of what is about to be written.
void CSVWriter::add_columns() {
  const size_t before = columns_.size();
  if (columns_.empty()) columns_ = kFirstColumns;
  for (const auto& [name, value] : unwritten_) {
    if (std::find(columns_.begin(), columns_.end(), name) == columns_.end()) {
      columns_.push_back(name);
    }
  }
  if (columns_.size() == before) return;
  std::vector<Row> rows = before == 0 ? std::vector<Row>(1) : parse(read_file(path_));
  TP_CHECK(!rows.empty(), "CSVWriter", "'{}' is empty: somebody else has written to it.",
           path_.string());
  rows[0] = columns_;
  write_rows(path_, std::move(rows));
}

void CSVWriter::write(const LoopState& loop) {
  if (unwritten_.empty()) return;
  try {
    if (!path_.empty()) {
      add_columns();
      Row row;
      for (const std::string& column : columns_) {
        const auto found = unwritten_.find(column);
        row.push_back(found == unwritten_.end() ? "" : fmt::format("{}", found->second));
      }
      row[0] = std::to_string(loop.epoch_num);
      row[1] = std::to_string(loop.global_step);
      std::ofstream file(path_, std::ios::app | std::ios::binary);
      file << to_line(row) << std::flush;
      TP_CHECK(file.good(), "CSVWriter", "'{}' cannot be written. Is the disk full?",
               path_.string());
    }
  } catch (const std::exception& error) {
    if (!std::exchange(failed_, true)) logging::error("{} Training goes on.", error.what());
  }
  unwritten_.clear();
}

}  // namespace tensorpack
