// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/map.h"

namespace tensorpack {
namespace {

class Map final : public DataFlow {
 public:
  Map(DataFlowPtr flow, MapFunction function, bool keeps_all)
      : flow_(std::move(flow)), function_(std::move(function)), keeps_all_(keeps_all) {}

  void start(int64_t pass) override { flow_->start(pass); }

  std::optional<DataPoint> next() override {
    while (auto point = flow_->next()) {
      if (auto mapped = function_(std::move(*point))) return mapped;
    }
    return std::nullopt;
  }

  int64_t skip(int64_t count) override {
    return keeps_all_ ? flow_->skip(count) : DataFlow::skip(count);
  }

  std::optional<int64_t> size() const override { return keeps_all_ ? flow_->size() : std::nullopt; }

 private:
  DataFlowPtr flow_;
  MapFunction function_;
  bool keeps_all_;
};

}  // namespace

Stage detail::map_stage(MapFunction function, bool keeps_all) {
  return [function = std::move(function), keeps_all](DataFlowPtr flow) {
    return std::make_unique<Map>(std::move(flow), function, keeps_all);
  };
}

}  // namespace tensorpack
