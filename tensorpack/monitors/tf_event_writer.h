// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/monitors/monitor.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {

class EventFile;
class ProtoWriter;

struct TFEventWriterOptions {
  /// By default the log directory.
  std::filesystem::path dir = {};
  /// How long a value may wait in memory. An epoch's end and a checkpoint write all there is.
  double flush_seconds = 30;
  /// Starts another file with every epoch: for trainings that write very much.
  bool split_files = false;
  /// Writes what a step does, once.
  bool writes_graph = true;
};

/// Writes everything to event files, which TensorBoard shows: scalars, images, histograms, texts,
/// the graph of a step, and hyper-parameters.
///
///   tensorboard --logdir train_log
///
/// A training that goes on from a checkpoint adds a file; of those that are there, what belongs to
/// steps that will be made again is removed. When a training starts from the beginning, event files
/// that are there are moved to the folder `events-<MMDD-HHMMSS>`, which TensorBoard shows as
/// another run. Without a log directory nothing is written, after a warning; a file that cannot be
/// written is an error in the log, once, and training goes on.
class TFEventWriter final : public MonitorBase {
 public:
  explicit TFEventWriter(TFEventWriterOptions options = {});
  TFEventWriter(TFEventWriter&&) noexcept;
  TFEventWriter& operator=(TFEventWriter&&) noexcept;
  ~TFEventWriter() override;

  void process_scalar(const std::string& name, double value, const LoopState& loop) override;
  void process_image(const std::string& name, const Image& image, const LoopState& loop) override;
  void process_histogram(const std::string& name, const Histogram& histogram,
                         const LoopState& loop) override;
  void process_text(const std::string& name, const std::string& text,
                    const LoopState& loop) override;
  void process_hyper_params(const HyperParams& params, const LoopState& loop) override;
  bool wants_graph() const override { return options_.writes_graph && file_ != nullptr; }
  void process_graph(const Trace& trace, const LoopState& loop) override;

  void before_train(const LoopState& loop) override;
  void trigger_step(const LoopState& loop) override;
  void trigger_epoch(const LoopState& loop) override;
  void flush() override;
  void after_train(const LoopState& loop) override;

 private:
  void put(const ProtoWriter& summary, const LoopState& loop);
  void put_hyper_params(const LoopState& loop);
  void put_end(const LoopState& loop);
  template <typename Action>
  void try_to(const Action& action);

  TFEventWriterOptions options_;
  std::filesystem::path dir_;  // empty: nothing is written
  detail::Pimpl<EventFile> file_;
  // What was reported before before_train(): the directory may have files of before.
  std::vector<std::pair<ProtoWriter, int64_t>> early_;
  HyperParams hyper_params_;
  bool is_open_ = false;
  bool has_unwritten_ = false;
  Timer since_flush_;
};

}  // namespace tensorpack
