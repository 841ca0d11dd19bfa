// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/map.h"

#include <fmt/format.h>

#include "tensorpack/dataflow/detail/map_runner.h"
#include "tensorpack/dataflow/detail/work_ahead.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

class Map : public DataFlow {
 public:
  Map(DataFlowPtr flow, const char* name, detail::MapWork work, MapOptions options)
      : flow_(std::move(flow)),
        name_(name),
        run_(name, std::move(work), options, detail::part_of(*flow_)) {}

  void start(int64_t pass) override {
    flow_->start(pass);
    pass_ = pass;
    number_ = 0;
  }

  std::optional<DataPoint> next() override {
    while (auto point = flow_->next()) {
      if (auto mapped = run(std::move(*point))) return mapped;
    }
    return std::nullopt;
  }

  int64_t skip(int64_t count) override {
    if (!run_.keeps_all()) return DataFlow::skip(count);
    const int64_t skipped = flow_->skip(count);
    number_ += skipped;
    return skipped;
  }

  std::optional<int64_t> size() const override {
    return run_.keeps_all() ? flow_->size() : std::nullopt;
  }

  bool is_endless() const override { return flow_->is_endless(); }

 private:
  std::optional<DataPoint> run(DataPoint point) {
    const int64_t number = number_++;
    try {
      return run_(std::move(point), pass_, number);
    } catch (const std::exception& error) {
      const bool is_ours = dynamic_cast<const Error*>(&error) != nullptr;
      if (!is_ours && !is_plain(error)) throw;  // somebody may wait for it
      detail::throw_named(name_, fmt::format("datapoint {} of the pass", number),
                          std::current_exception());
    }
  }

  DataFlowPtr flow_;
  const char* name_;
  detail::MapRunner run_;
  int64_t pass_ = 0;
  int64_t number_ = 0;
};

// Tables of stages name them after their classes.
class MapComponent final : public Map {
  using Map::Map;
};
class Filter final : public Map {
  using Map::Map;
};
class Select final : public Map {
  using Map::Map;
};

template <typename Flow, typename Function>
Stage stage_of(const char* name, Function function, MapOptions options = {}) {
  return [name, work = detail::map_work(std::move(function)), options](DataFlowPtr flow) {
    return std::make_unique<Flow>(std::move(flow), name, work, options);
  };
}

}  // namespace

void detail::throw_empty_function() {
  throw make_error("map", "the function is empty. Pass one from datapoints to datapoints.");
}

Stage detail::map_stage(MapWork work, MapOptions options) {
  return [work = std::move(work), options](DataFlowPtr flow) {
    return std::make_unique<Map>(std::move(flow), "map", work, options);
  };
}

Stage detail::map_component_stage(size_t index, ComponentWork work, MapOptions options) {
  TP_CHECK(work.function != nullptr, "map_component",
           "the function is empty. Pass one from tensors to tensors.");
  const auto map = [index, work](DataPoint point) -> std::optional<DataPoint> {
    point[index] = work.function(std::move(point[index]));
    if (point[index].defined()) return point;
    if (work.keeps_all) {
      logging::warning_once(
          "[map_component] the function returned an undefined tensor, and the datapoint was "
          "dropped: the size of the flow is wrong, and a training that is resumed within a pass "
          "goes on elsewhere. Have it return std::optional<Tensor>.");
    }
    return std::nullopt;
  };
  return [work = MapWork{map_work(map).function, work.keeps_all}, options](DataFlowPtr flow) {
    return std::make_unique<MapComponent>(std::move(flow), "map_component", work, options);
  };
}

Stage filter(std::function<bool(const DataPoint&)> keep) {
  TP_CHECK(keep != nullptr, "filter", "the function is empty. Pass one that says what to keep.");
  return stage_of<Filter>("filter",
                          [keep = std::move(keep)](DataPoint point) -> std::optional<DataPoint> {
                            if (!keep(point)) return std::nullopt;
                            return point;
                          });
}

Stage select(std::vector<size_t> components) {
  TP_CHECK(!components.empty(), "select",
           "no component is selected: datapoints would be empty. Name at least one.");
  return stage_of<Select>("select", [components = std::move(components)](DataPoint point) {
    DataPoint selected;
    selected.reserve(components.size());
    for (const size_t index : components) selected.push_back(point[index]);
    return selected;
  });
}

}  // namespace tensorpack
