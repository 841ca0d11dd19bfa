// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/inspect.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tensorpack/dataflow/detail/bytes_of.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/progress_meter.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

class Print final : public DataFlow {
 public:
  Print(DataFlowPtr flow, PrintOptions options)
      : flow_(std::move(flow)), options_(std::move(options)) {}

  void start(int64_t pass) override { flow_->start(pass); }

  std::optional<DataPoint> next() override {
    auto point = flow_->next();
    if (point && printed_ < options_.count) {
      logging::info("{} datapoint {}: {}", options_.name.empty() ? "print" : options_.name,
                    printed_++, describe(*point));
    }
    return point;
  }

  int64_t skip(int64_t count) override { return flow_->skip(count); }
  std::optional<int64_t> size() const override { return flow_->size(); }
  bool is_endless() const override { return flow_->is_endless(); }

 private:
  DataFlowPtr flow_;
  PrintOptions options_;
  int64_t printed_ = 0;
};

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text =
      fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
  if (tensor.numel() == 0 || tensor.is_complex()) return text;
  const at::Tensor values = tensor.to(at::kDouble);
  const double low = values.min().item<double>();
  return text + (tensor.numel() == 1 ? fmt::format(" = {}", low)
                                     : fmt::format(" in {}..{}", low, values.max().item<double>()));
}

// The next datapoint of any pass.
DataPoint next_of_any_pass(DataFlow& flow, int64_t& pass) {
  auto point = flow.next();
  if (!point) {
    flow.start(++pass);
    point = flow.next();
  }
  TP_CHECK(point, "test_speed", "pass {} of the flow has no datapoints.", pass);
  return std::move(*point);
}

}  // namespace

Stage print(PrintOptions options) {
  return [options = std::move(options)](DataFlowPtr flow) {
    return std::make_unique<Print>(std::move(flow), options);
  };
}

std::string describe(const DataPoint& point) {
  std::vector<std::string> components;
  for (const at::Tensor& tensor : point) components.push_back(describe(tensor));
  return fmt::format("{{{}}}", fmt::join(components, "; "));
}

Speed test_speed(DataFlow& flow, SpeedOptions options) {
  TP_CHECK(options.count > 0 && options.warmup >= 0, "test_speed",
           "the count {} must be positive and the warmup {} not negative.", options.count,
           options.warmup);
  int64_t pass = 0;
  flow.start(pass);
  for (int64_t i = 0; i < options.warmup; ++i) next_of_any_pass(flow, pass);

  std::optional<ProgressMeter> meter;
  if (options.progress) meter.emplace(ProgressMeterOptions{.total = options.count});
  const Timer timer;
  uint64_t bytes = 0;
  for (int64_t i = 0; i < options.count; ++i) {
    const detail::SampleScope sample(i);
    bytes += detail::bytes_of(next_of_any_pass(flow, pass));
    if (meter) meter->advance();
  }
  const double seconds = timer.seconds();
  if (meter) meter->close();

  Speed speed{.datapoints_per_second = static_cast<double>(options.count) / seconds,
              .bytes_per_second = static_cast<double>(bytes) / seconds,
              .stages = stage_report(flow)};
  logging::info("{} in {:.3f} s: {:.4g} per second, {:.4g} MB/s",
                counted(options.count, "datapoint"), seconds, speed.datapoints_per_second,
                speed.bytes_per_second / 1e6);
  if (!speed.stages.empty()) logging::info("Where the time goes:\n{}", format_stages(speed.stages));
  return speed;
}

}  // namespace tensorpack
