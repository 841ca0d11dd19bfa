// SPDX-License-Identifier: Apache-2.0
// All monitors of a training, and the history of every scalar.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/monitors/monitor.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// `trainer().monitors()`: hands every value to each monitor, and remembers scalars for the run.
class Monitors {
 public:
  /// `loop` must outlive this object; values are stamped with its current step. `rank` is that of
  /// this process among those that train together: most scalars are reported in rank 0 alone.
  Monitors(OwnedList<MonitorBase> monitors, const LoopState& loop, int rank = 0);
  ~Monitors();

  /// What was reported at this step already, as by two setters of one hyper-parameter, is not
  /// reported again; another value of the same step takes the place of the one before.
  void put_scalar(const std::string& name, double value);
  void put_image(const std::string& name, const Image& image);
  /// The pictures in a tensor (see to_images()) with values in 0..255; several are named `name/0`,
  /// `name/1` ... A decoded picture is [H, W, C]: Image, or ImageLayout::kNHWC.
  void put_image(const std::string& name, const at::Tensor& pixels,
                 ImageLayout layout = ImageLayout::kNCHW);
  void put_histogram(const std::string& name, const Histogram& histogram);
  void put_histogram(const std::string& name, const at::Tensor& values);
  void put_text(const std::string& name, const std::string& text);
  /// What the run was started with, besides what is reported of every run: the flags, the
  /// optimizer's options and the trainer's. TensorBoard takes what is there by before_train().
  void put_hyper_params(const HyperParams& params);
  /// All that was put so far.
  const HyperParams& hyper_params() const { return hyper_params_; }
  bool wants_graph() const;
  void put_graph(const Trace& trace);
  void put_setup(const RunSetup& setup);
  void put_profile(const std::vector<LayerTime>& layers);
  void put_stages(const std::vector<StageReport>& stages);

  /// Claims a name for what `owner` will report under it; throws an Error when another has it.
  void claim(const std::string& name, const std::string& owner);

  /// The newest value; throws an Error with the nearest names if there is none, which in other
  /// ranks than the first says that the chief may have it.
  double get_latest(const std::string& name) const;
  /// Every (global_step, value) of this run, oldest first, the last of each step; throws as
  /// get_latest() does.
  const std::vector<std::pair<int64_t, double>>& get_history(const std::string& name) const;
  bool contains(const std::string& name) const;
  /// Of the scalars that were reported.
  std::set<std::string> names() const;
  /// For a message about a name that is not there: "Did you mean 'cost'?"
  std::string nearest_names(const std::string& name) const;

  OwnedList<MonitorBase>& all() { return monitors_; }

 private:
  OwnedList<MonitorBase> monitors_;
  const LoopState& loop_;
  int rank_;
  struct History;
  detail::Pimpl<History> history_;
  HyperParams hyper_params_;
  std::map<std::string, std::string> owners_;  // of the names that were claimed
};

}  // namespace tensorpack
