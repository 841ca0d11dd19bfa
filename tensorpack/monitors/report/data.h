// SPDX-License-Identifier: Apache-2.0
// What a report says, and how that is written down: one JSON object, described in
// docs/tutorial/report.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorpack/dataflow/stage_report.h"
#include "tensorpack/monitors/layer_time.h"
#include "tensorpack/monitors/report/series.h"

namespace tensorpack::report {

/// Names and values, in the order in which they are shown.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// What was reported under one name at some steps: of many, those at equal distances and the
/// newest.
template <typename T>
class History {
 public:
  struct Item {
    int64_t step = 0;
    T value = {};
  };
  static constexpr size_t kMaxItems = 40;  // even: see add()

  void add(int64_t step, T value) {
    if (seen_ > 0 && (seen_ - 1) % every_ != 0) items_.pop_back();
    items_.push_back({step, std::move(value)});
    ++seen_;
    if (items_.size() <= kMaxItems) return;
    for (size_t i = 0; 2 * i < items_.size(); ++i) items_[i] = std::move(items_[2 * i]);
    items_.resize(kMaxItems / 2 + 1);
    every_ *= 2;
  }
  void drop_oldest() { items_.erase(items_.begin()); }
  const std::vector<Item>& items() const { return items_; }

 private:
  std::vector<Item> items_;
  int64_t every_ = 1;
  int64_t seen_ = 0;
};

struct HistogramData {
  double low = 0;
  double high = 0;
  std::vector<double> counts = {};
};

/// A part of the model: what ran in one scope.
struct Layer {
  std::string path = {};
  std::string shape = {};  ///< of its output; empty if unknown
  int64_t parameters = 0;
  int64_t count = 0;                                                ///< of operators
  std::vector<std::pair<std::string, std::string>> operators = {};  ///< the first, with shapes
  std::optional<LayerTime> time = {};                               ///< of a profile
};

struct Parameter {
  std::string name = {};
  std::string shape = {};
  int64_t elements = 0;
  int64_t bytes = 0;
  std::string dtype = {};
  std::string device = {};
  bool is_trained = true;
};

struct Progress {
  int64_t epoch = 0;
  int64_t max_epoch = 0;
  int64_t step = 0;
  int64_t steps_per_epoch = 0;
  std::string state = "running";  ///< or "finished", or "stopped" before its end
  double written = 0;             ///< seconds since 1970
};

struct Data {
  std::string name = {};
  Progress progress = {};
  std::map<std::string, Series> scalars = {};
  std::map<std::string, History<std::string>> images = {};  ///< PNG files in base64
  std::map<std::string, History<HistogramData>> histograms = {};
  std::map<std::string, History<std::string>> texts = {};
  std::vector<Layer> layers = {};
  std::vector<Parameter> parameters = {};
  std::vector<StageReport> stages = {};  ///< of the data, its source first
  Facts flags = {};
  Facts configuration = {};
  Facts environment = {};
  std::string log = {};
  double seconds = 0;  ///< of training, all of its sessions together
};

/// The object as text. It has no '<', so that it can stand in a page.
std::string to_json(const Data& data);

/// What a training that goes on at `step` takes over of an earlier report: its numbers, images,
/// histograms and texts up to that step, and the seconds. Nothing when `json` is no report, or has
/// nothing of these steps.
std::optional<Data> resume_from_json(std::string_view json, int64_t step);

}  // namespace tensorpack::report
