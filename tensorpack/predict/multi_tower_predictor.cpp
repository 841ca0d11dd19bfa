// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/multi_tower_predictor.h"

#include <algorithm>

#include "tensorpack/optim/moving_average.h"
#include "tensorpack/tower/define_tower.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

std::vector<c10::Device> devices_of(const Devices& devices, const GraphOptions& graph) {
  return devices.list().empty() ? std::vector<c10::Device>{graph.device} : devices.list();
}

std::string name_of(size_t tower) { return "tower" + std::to_string(tower); }

// The first tower of a device has the variables that the others there use, too.
TowerOptions tower_options(const std::vector<c10::Device>& devices, size_t index) {
  const auto first = std::find(devices.begin(), devices.end(), devices[index]);
  const auto owner = static_cast<size_t>(first - devices.begin());
  return {
      .name = devices.size() == 1 ? "" : name_of(index),
      .is_training = false,
      .index = static_cast<int>(index),
      .total = static_cast<int>(devices.size()),
      .device = devices[index],
      .variable_prefix = owner == 0 ? "" : name_of(owner) + "/",
      .shares_variables = owner != index,
  };
}

// A session of its own for every tower: two of them do not wait for each other.
OfflinePredictor make_predictor(const std::shared_ptr<Graph>& graph, const TowerHandle& tower,
                                const PredictConfig& config) {
  SessionOptions options = config.session;
  options.exclusive = false;
  auto session = std::make_shared<Session>(*graph, options);
  const auto predictor = std::make_shared<const OnlinePredictor>(
      *graph, tower,
      PredictorOptions{.input_names = config.input_names, .output_names = config.output_names},
      [graph, session]() -> Session& { return *session; });
  return {graph, predictor};
}

}  // namespace

MultiTowerOfflinePredictor::MultiTowerOfflinePredictor(PredictConfig config,
                                                       const Devices& devices) {
  const std::vector<c10::Device> places = devices_of(devices, config.graph);
  config.graph.device = places[0];
  const auto graph = std::make_shared<Graph>(config.graph);
  detail::restore_moving_averages(*graph);
  std::vector<TowerHandle> towers;
  for (size_t i = 0; i < places.size(); ++i) {
    towers.push_back(
        define_tower(*graph, tower_options(places, i),
                     {.op_name = places.size() == 1 ? "predict" : "predict-" + name_of(i),
                      .inputs = config.inputs,
                      .function = config.tower_func}));
  }
  detail::init_variables(config, *graph, towers[0].op());
  graph->finalize();
  for (const TowerHandle& tower : towers) {
    predictors_.push_back(make_predictor(graph, tower, config));
  }
}

const OfflinePredictor& MultiTowerOfflinePredictor::operator[](size_t tower) const {
  TP_CHECK(tower < size(), "MultiTowerOfflinePredictor",
           "there is no tower {}: there are {}. Count from 0.", tower, size());
  return predictors_[tower];
}

}  // namespace tensorpack
