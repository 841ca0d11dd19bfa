// SPDX-License-Identifier: Apache-2.0
// A training as a page to look at.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/monitors/monitor.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

namespace report {
struct Data;
}

struct ReportOptions {
  /// The file; by default `report.html` in the log directory.
  std::filesystem::path path = {};
  /// Besides the end of each epoch, it is written after so many seconds.
  double period = 30;
  /// No more than this share of the time goes into writing: short epochs share a page.
  double max_share = 0.01;
};

/// Writes one HTML file, complete in itself, that shows a training: charts of all scalars, images,
/// histograms, texts, the layers, the parameters, the stages of the data, the settings, the machine
/// and the end of the log. It needs neither a server nor a network; `tp watch` shows it while it
/// grows, and several at once.
///
/// The file is always whole: it is replaced at the end of an epoch, before a checkpoint is saved
/// and at the end of training. It does not grow without bounds: of many points, images and
/// histograms those that tell most are kept. Without a log directory nothing is written; a file
/// that cannot be written is an error in the log, once, and training goes on.
///
/// A training that is resumed goes on with the report it finds; what belongs to steps that will be
/// made again is removed. The report of another training is moved to `report.<MMDD-HHMMSS>.html`.
class Report final : public MonitorBase {
 public:
  explicit Report(ReportOptions options = {});
  Report(Report&&) noexcept;
  Report& operator=(Report&&) noexcept;
  ~Report() override;

  void process_scalar(const std::string& name, double value, const LoopState& loop) override;
  void process_image(const std::string& name, const Image& image, const LoopState& loop) override;
  void process_histogram(const std::string& name, const Histogram& histogram,
                         const LoopState& loop) override;
  void process_text(const std::string& name, const std::string& text,
                    const LoopState& loop) override;
  void process_hyper_params(const HyperParams& params, const LoopState& loop) override;
  void process_setup(const RunSetup& setup, const LoopState& loop) override;
  bool wants_graph() const override { return !path_.empty(); }
  void process_graph(const Trace& trace, const LoopState& loop) override;
  void process_profile(const std::vector<LayerTime>& times, const LoopState& loop) override;
  void process_stages(const std::vector<StageReport>& stages, const LoopState& loop) override;

  void before_train(const LoopState& loop) override;
  void trigger_step(const LoopState& loop) override;
  void trigger_epoch(const LoopState& loop) override;
  void flush() override;
  void after_train(const LoopState& loop) override;

  /// Where a report in the log directory is; empty without one.
  static std::filesystem::path default_path();

 private:
  using Clock = std::chrono::steady_clock;

  double seconds() const;
  void take_over(const LoopState& loop);
  void drop_images();
  void note_progress(const LoopState& loop);
  bool is_due(double pause) const;
  void write();

  ReportOptions options_;
  std::filesystem::path path_;  // empty: nothing is written
  detail::Pimpl<report::Data> data_;
  std::map<std::string, TensorSpec> outputs_;  // of layers, named as in the graph
  Clock::time_point start_ = Clock::now();
  double seconds_before_ = 0;  // of the sessions before this one
  bool is_changed_ = false;
  bool has_failed_ = false;
  double last_write_ = -1e9;  // by seconds()
  double write_cost_ = 0;
};

}  // namespace tensorpack
