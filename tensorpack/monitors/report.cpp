// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "tensorpack/graph/trace.h"
#include "tensorpack/monitors/earlier_files.h"
#include "tensorpack/monitors/has_finished.h"
#include "tensorpack/monitors/report/data.h"
#include "tensorpack/monitors/report/environment.h"
#include "tensorpack/monitors/report/layers.h"
#include "tensorpack/monitors/report/page.h"
#include "tensorpack/monitors/run_setup.h"
#include "tensorpack/utils/base64.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/flags.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportFile = "report.html";
// What keeps a usual report below 2 MB, together with the bounds in report/data.
constexpr size_t kMaxImageBytes = 100'000;  // of one, as a PNG file
constexpr size_t kMaxAllImages = 600'000;   // of all, in base64
constexpr size_t kMaxTextBytes = 10'000;
constexpr int64_t kMaxLogBytes = 30'000;

// The last lines of a file, as many as fit.
std::string tail_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<int64_t>(file.tellg());
  if (size <= 0) return "";
  file.seekg(std::max<int64_t>(0, size - kMaxLogBytes));
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (size > kMaxLogBytes) text.erase(0, text.find('\n') + 1);  // half a line
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// Pictures that are too large are halved until they fit.
std::string png_of(Image image) {
  while (image.png().size() > kMaxImageBytes && image.height() > 2 && image.width() > 2) {
    const at::Tensor planes = image.pixels().permute({2, 0, 1}).unsqueeze(0).to(at::kFloat);
    image = Image(at::avg_pool2d(planes, 2).squeeze(0).permute({1, 2, 0}));
  }
  return image.png();
}

report::HistogramData to_data(const Histogram& histogram) {
  return {
      .low = histogram.edges.front(), .high = histogram.edges.back(), .counts = histogram.counts};
}

fs::path free_name(const fs::path& path) {
  const fs::path begin = path.parent_path() / path.stem();
  return free_path(fmt::format("{}.{}", begin.string(), timestamp()), path.extension().string());
}

template <typename Histories>
void append(Histories& to, const Histories& from) {
  for (const auto& [name, history] : from) {
    for (const auto& item : history.items()) to[name].add(item.step, item.value);
  }
}

double now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace

Report::Report(ReportOptions options)
    : options_(std::move(options)), data_(std::make_unique<report::Data>()) {
  TP_CHECK(options_.period >= 0 && options_.max_share > 0, "Report",
           "the period, {}, must not be negative, and max_share, {}, must be positive.",
           options_.period, options_.max_share);
}

Report::Report(Report&&) noexcept = default;
Report& Report::operator=(Report&&) noexcept = default;
Report::~Report() = default;

fs::path Report::default_path() {
  const auto dir = get_logger_dir();
  return dir ? *dir / kReportFile : fs::path();
}

double Report::seconds() const {
  return seconds_before_ + std::chrono::duration<double>(Clock::now() - start_).count();
}

void Report::process_scalar(const std::string& name, double value, const LoopState& loop) {
  data_->scalars[name].add({loop.global_step, seconds(), value});
  is_changed_ = true;
}

void Report::process_image(const std::string& name, const Image& image, const LoopState& loop) {
  data_->images[name].add(loop.global_step, encode_base64(png_of(image)));
  drop_images();
  is_changed_ = true;
}

// The oldest go first, of the name that has most of them.
void Report::drop_images() {
  while (true) {
    size_t bytes = 0;
    report::History<std::string>* longest = nullptr;
    for (auto& [name, history] : data_->images) {
      for (const auto& item : history.items()) bytes += item.value.size();
      const bool is_longer = !longest || history.items().size() > longest->items().size();
      if (is_longer) longest = &history;
    }
    if (bytes <= kMaxAllImages || longest->items().size() <= 1) return;
    longest->drop_oldest();
  }
}

void Report::process_histogram(const std::string& name, const Histogram& histogram,
                               const LoopState& loop) {
  if (histogram.counts.empty()) return;  // no value was finite
  data_->histograms[name].add(loop.global_step, to_data(histogram));
  is_changed_ = true;
}

void Report::process_text(const std::string& name, const std::string& text, const LoopState& loop) {
  data_->texts[name] = {};  // the newest is shown
  data_->texts[name].add(loop.global_step, text.substr(0, kMaxTextBytes));
  is_changed_ = true;
}

// Flags are shown by themselves.
void Report::process_hyper_params(const HyperParams& params, const LoopState&) {
  const FlagValues given = command_line_flags();
  data_->configuration.clear();
  for (const auto& [name, value] : params) {
    const bool is_flag = std::any_of(given.begin(), given.end(), [&name = name](const auto& flag) {
      return name_of_flag(flag.first) == name;
    });
    if (!is_flag) data_->configuration.emplace_back(name, value);
  }
  is_changed_ = true;
}

void Report::process_setup(const RunSetup& setup, const LoopState&) {
  data_->parameters = report::list_parameters(setup.variables);
  outputs_ = setup.tensors;
  is_changed_ = true;  // so that there is a report from the first step on
}

void Report::process_graph(const Trace& trace, const LoopState&) {
  const auto before = std::exchange(data_->layers, report::list_layers(trace));
  report::complete_layers(data_->layers, data_->parameters, outputs_);
  for (const report::Layer& layer : before) {
    if (layer.time) report::add_times(data_->layers, {*layer.time});  // profiled already
  }
  is_changed_ = true;
}

void Report::process_profile(const std::vector<LayerTime>& times, const LoopState&) {
  report::add_times(data_->layers, times);
  is_changed_ = true;
}

void Report::process_stages(const std::vector<StageReport>& stages, const LoopState&) {
  data_->stages = stages;
  is_changed_ = true;
}

void Report::before_train(const LoopState& loop) {
  has_failed_ = false;
  path_ = options_.path.empty() ? default_path() : options_.path;
  if (path_.empty()) return;
  data_->name = fs::absolute(path_).parent_path().filename().string();
  data_->flags = command_line_flags();
  data_->environment = report::environment_facts();
  try {
    if (fs::exists(path_)) take_over(loop);
  } catch (const std::exception& error) {
    logging::error("[Report] {}. No report is written.", error.what());
    path_.clear();
  }
}

// What callbacks reported before their training began is already here: it comes after what was.
void Report::take_over(const LoopState& loop) {
  const std::string page = read_file(path_);
  std::optional<report::Data> earlier;
  if (loop.is_resumed()) {
    earlier = report::resume_from_json(report::data_in_page(page), loop.global_step);
  }
  if (!earlier) {
    const fs::path moved = free_name(path_);
    fs::rename(path_, moved);
    logging::info("The report of another training, '{}', is now '{}'.", path_.string(),
                  moved.filename().string());
    return;
  }
  seconds_before_ = earlier->seconds;
  for (const auto& [name, series] : data_->scalars) {
    for (report::Point point : series.points()) {
      point.seconds += seconds_before_;
      earlier->scalars[name].add(point);
    }
  }
  append(earlier->images, data_->images);
  append(earlier->histograms, data_->histograms);
  for (const auto& [name, history] : data_->texts) earlier->texts[name] = history;
  data_->scalars = std::move(earlier->scalars);
  data_->images = std::move(earlier->images);
  data_->histograms = std::move(earlier->histograms);
  data_->texts = std::move(earlier->texts);
}

void Report::note_progress(const LoopState& loop) {
  data_->progress = {.epoch = loop.epoch_num,
                     .max_epoch = loop.max_epoch,
                     .step = loop.global_step,
                     .steps_per_epoch = loop.steps_per_epoch};
}

bool Report::is_due(double pause) const {
  return seconds() - last_write_ >= std::max(pause, write_cost_ / options_.max_share);
}

void Report::trigger_step(const LoopState& loop) {
  note_progress(loop);
  if (is_changed_ && !loop.is_last_step_of_epoch() && is_due(options_.period)) write();
}

void Report::trigger_epoch(const LoopState& loop) {
  note_progress(loop);
  is_changed_ = true;
  if (is_due(0)) write();
}

// A checkpoint that is resumed from must find the numbers that belong to it.
void Report::flush() {
  if (is_changed_) write();
}

void Report::after_train(const LoopState& loop) {
  note_progress(loop);
  data_->progress.state = has_finished(loop) ? "finished" : "stopped";
  write();
  if (!path_.empty() && !has_failed_)
    logging::info("The report of this training: {}", path_.string());
}

void Report::write() {
  is_changed_ = false;
  if (path_.empty()) return;
  const double begin = seconds();
  try {
    data_->progress.written = now();
    if (const auto dir = get_logger_dir()) data_->log = tail_of(*dir / "log.log");
    const std::string json = report::to_json(*data_);
    const std::string_view page = report::page();
    const size_t place = page.find(report::kDataBegin) + report::kDataBegin.size();
    write_file_atomically(path_, [&](std::ostream& out) {
      out << page.substr(0, place) << json << page.substr(place);
    });
  } catch (const std::exception& error) {
    if (!std::exchange(has_failed_, true)) logging::error("{} Training goes on.", error.what());
  }
  last_write_ = seconds();
  write_cost_ = last_write_ - begin;
}

}  // namespace tensorpack
