// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/tf_event_writer.h"

#include <unistd.h>

#include <charconv>
#include <chrono>
#include <utility>

#include "tensorpack/graph/dump.h"
#include "tensorpack/monitors/earlier_files.h"
#include "tensorpack/monitors/event_file.h"
#include "tensorpack/monitors/has_finished.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

std::vector<fs::path> event_files(const fs::path& dir) {
  std::vector<fs::path> files;
  if (!fs::is_directory(dir)) return files;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.path().filename().string().starts_with(kPrefix)) files.push_back(entry.path());
  }
  return files;
}

// Of a training that is made again from the start.
void move_away(const std::vector<fs::path>& files, const fs::path& dir) {
  const fs::path folder = free_path(dir / ("events-" + timestamp()));
  fs::create_directories(folder);
  for (const fs::path& file : files) fs::rename(file, folder / file.filename());
  logging::info("The event files of an earlier training are moved to '{}'.", folder.string());
}

void cut_back(const std::vector<fs::path>& files, int64_t step) {
  size_t removed = 0;
  for (const fs::path& file : files) removed += cut_event_file(file, step);
  if (removed == 0) return;
  logging::info("Removed {} of steps after {}, which are made again.",
                counted(static_cast<int64_t>(removed), "event"), step);
}

// TensorBoard reads files in the order of their names.
fs::path new_file_name(const fs::path& dir) {
  char host[256] = "localhost";
  gethostname(host, sizeof host - 1);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  for (int i = 0;; ++i) {
    const fs::path path =
        dir / fmt::format("{}{:010}.{}.{}.{}", kPrefix, seconds, host, getpid(), i);
    if (!fs::exists(path)) return path;
  }
}

ProtoWriter summary_of(const ProtoWriter& value) {
  ProtoWriter summary;
  summary.message(1, value);
  return summary;
}

ProtoWriter metadata_of(std::string_view plugin, std::string_view content) {
  ProtoWriter data;
  data.string(1, plugin);
  data.string(2, content);
  ProtoWriter metadata;
  metadata.message(1, data);
  return metadata;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// For the plugin that shows hyper-parameters, which takes its data from descriptions of a value.
ProtoWriter hyper_param_entry(std::string_view tag, const ProtoWriter& data) {
  ProtoWriter entry;
  entry.string(1, tag);
  entry.message(9, metadata_of("hparams", data.bytes()));
  return entry;
}

// As the number or truth value that it is, or as a text.
ProtoWriter hyper_param_value(const std::string& text) {
  ProtoWriter value;
  if (text == "true" || text == "false") {
    value.integer(4, text == "true" ? 1 : 0);
    return value;
  }
  constexpr size_t kExactDigits = 15;  // a seed may have more
  const bool is_exact =
      text.size() <= kExactDigits || text.find_first_not_of("0123456789") != std::string::npos;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (is_exact && error == std::errc() && end == text.data() + text.size()) {
    value.number(2, number);
  } else {
    value.string(3, text);
  }
  return value;
}

}  // namespace

TFEventWriter::TFEventWriter(TFEventWriterOptions options) : options_(std::move(options)) {
  TP_CHECK(options_.flush_seconds >= 0, "TFEventWriter",
           "flush_seconds must not be negative, got {}.", options_.flush_seconds);
}

TFEventWriter::TFEventWriter(TFEventWriter&&) noexcept = default;
TFEventWriter& TFEventWriter::operator=(TFEventWriter&&) noexcept = default;
TFEventWriter::~TFEventWriter() = default;

// A training must not end because of its records.
template <typename Action>
void TFEventWriter::try_to(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    logging::error("[TFEventWriter] {} No more events are written; training goes on.",
                   error.what());
    file_.reset();
    dir_.clear();
  }
}

void TFEventWriter::before_train(const LoopState& loop) {
  file_.reset();
  is_open_ = true;
  dir_ = options_.dir.empty() ? get_logger_dir().value_or(fs::path()) : options_.dir;
  if (dir_.empty()) {
    logging::warning(
        "[TFEventWriter] there is no log directory: no events are written. Call set_logger_dir() "
        "first.");
    early_.clear();
    return;
  }
  try_to([&] {
    const std::vector<fs::path> earlier = event_files(dir_);
    if (loop.is_resumed()) {
      cut_back(earlier, loop.global_step);
    } else if (!earlier.empty()) {
      move_away(earlier, dir_);
    }
    fs::create_directories(dir_);
    file_ = std::make_unique<EventFile>(new_file_name(dir_));
    for (const auto& [summary, step] : early_) file_->add_summary(summary, step);
    early_.clear();
    if (!hyper_params_.empty()) put_hyper_params(loop);
    file_->flush();
  });
}

void TFEventWriter::put(const ProtoWriter& summary, const LoopState& loop) {
  if (!is_open_) {
    early_.emplace_back(summary, loop.global_step);
  } else if (file_) {
    file_->add_summary(summary, loop.global_step);
    has_unwritten_ = true;
  }
}

void TFEventWriter::process_scalar(const std::string& name, double value, const LoopState& loop) {
  ProtoWriter entry;
  entry.string(1, name);
  entry.number(2, static_cast<float>(value));
  put(summary_of(entry), loop);
}

void TFEventWriter::process_image(const std::string& name, const Image& image,
                                  const LoopState& loop) {
  ProtoWriter picture;
  picture.integer(1, image.height());
  picture.integer(2, image.width());
  picture.integer(3, image.channels());
  picture.string(4, image.png());
  ProtoWriter entry;
  entry.string(1, name);
  entry.message(4, picture);
  put(summary_of(entry), loop);
}

void TFEventWriter::process_histogram(const std::string& name, const Histogram& histogram,
                                      const LoopState& loop) {
  if (histogram.counts.empty()) return;
  ProtoWriter message;
  message.number(1, histogram.min);
  message.number(2, histogram.max);
  message.number(3, static_cast<double>(histogram.count));
  message.number(4, histogram.sum);
  message.number(5, histogram.sum_of_squares);
  message.numbers(6, std::span(histogram.edges).subspan(1));
  message.numbers(7, histogram.counts);
  ProtoWriter entry;
  entry.string(1, name);
  entry.message(5, message);
  put(summary_of(entry), loop);
}

void TFEventWriter::process_text(const std::string& name, const std::string& text,
                                 const LoopState& loop) {
  constexpr int kStringType = 7;
  ProtoWriter tensor;  // a scalar of strings
  tensor.integer(1, kStringType);
  tensor.message(2, {});
  tensor.string(8, text);
  ProtoWriter entry;
  entry.string(1, name);
  entry.message(8, tensor);
  entry.message(9, metadata_of("text", ""));
  put(summary_of(entry), loop);
}

// TensorBoard takes the first event that has them, so there is one with all of them.
void TFEventWriter::process_hyper_params(const HyperParams& params, const LoopState& loop) {
  hyper_params_ = params;
  if (is_open_) put_hyper_params(loop);
}

void TFEventWriter::put_hyper_params(const LoopState& loop) {
  ProtoWriter start_info;
  for (const auto& [name, value] : hyper_params_) {
    ProtoWriter entry;
    entry.string(1, name);
    entry.message(2, hyper_param_value(value));
    start_info.message(1, entry);
  }
  start_info.number(5, seconds_since_1970());
  ProtoWriter data;
  data.message(3, start_info);
  put(summary_of(hyper_param_entry("_hparams_/session_start_info", data)), loop);
}

// TensorBoard takes the first of these, too. So a training that ended early, and may be resumed,
// has none, and shows as of unknown status.
void TFEventWriter::put_end(const LoopState& loop) {
  constexpr int kSuccess = 1;
  ProtoWriter end_info;
  end_info.integer(1, kSuccess);
  end_info.number(2, seconds_since_1970());
  ProtoWriter data;
  data.message(4, end_info);
  put(summary_of(hyper_param_entry("_hparams_/session_end_info", data)), loop);
}

void TFEventWriter::process_graph(const Trace& trace, const LoopState& loop) {
  if (file_) file_->add_graph(dump_graph_def(trace), loop.global_step);
}

void TFEventWriter::trigger_step(const LoopState&) {
  if (!has_unwritten_ || since_flush_.seconds() < options_.flush_seconds) return;
  if (file_) try_to([&] { file_->flush(); });
  has_unwritten_ = false;
  since_flush_.reset();
}

void TFEventWriter::trigger_epoch(const LoopState&) {
  if (!file_) return;
  try_to([&] {
    file_->flush();
    if (options_.split_files) file_ = std::make_unique<EventFile>(new_file_name(dir_));
  });
  has_unwritten_ = false;
}

void TFEventWriter::flush() {
  if (!file_) return;
  try_to([&] {
    file_->flush();
    sync_file(file_->path());
  });
}

void TFEventWriter::after_train(const LoopState& loop) {
  if (!hyper_params_.empty() && has_finished(loop)) put_end(loop);
  if (file_) try_to([&] { file_->flush(); });
  file_.reset();
  is_open_ = false;
}

}  // namespace tensorpack
