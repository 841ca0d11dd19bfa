// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "tensorpack/parallel/tower_exchange.h"
#include "tensorpack/parallel/tower_group.h"

namespace tensorpack {
namespace {

class StreamExchange final : public TowerGroup {
 public:
  explicit StreamExchange(const TowerExchangeOptions& options)
      : TowerGroup(options.towers),
        scale_(options.average ? 1.0 / static_cast<double>(options.towers) : 1.0) {}

 protected:
  struct StreamBucket final : Bucket {
    std::vector<std::unique_ptr<c10::Event>> written;  // by tower: its tensors
    std::vector<std::unique_ptr<c10::Event>> read;     // by tower: everybody's tensors
  };

  std::unique_ptr<Bucket> make_bucket() const override {
    auto bucket = std::make_unique<StreamBucket>();
    bucket->written.resize(towers());
    bucket->read.resize(towers());
    return bucket;
  }

  void on_brought(Bucket& bucket, size_t index) override {
    record(streams(bucket).written[index], bucket, index);
  }

  void deliver(Bucket& bucket, size_t index) override {
    wait_on_stream(streams(bucket).written, bucket, index);
    add_up(bucket, index);
    record(streams(bucket).read[index], bucket, index);
    // Nobody gives its tensors back before all have read them.
    wait_for_delivery(bucket);
    wait_on_stream(streams(bucket).read, bucket, index);
  }

 private:
  static StreamBucket& streams(Bucket& bucket) { return static_cast<StreamBucket&>(bucket); }

  // The host has no streams: what is there was done before it was brought.
  static bool is_on_host(const Bucket& bucket, size_t index) {
    return bucket.given[index][0].is_cpu();
  }

  static c10::Stream stream_of(const Bucket& bucket, size_t index) {
    const c10::Device device = bucket.given[index][0].device();
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }

  static void record(std::unique_ptr<c10::Event>& event, const Bucket& bucket, size_t index) {
    if (is_on_host(bucket, index)) return;
    const c10::Stream stream = stream_of(bucket, index);
    if (!event) event = std::make_unique<c10::Event>(stream.device_type());
    event->record(stream);
  }

  static void wait_on_stream(const std::vector<std::unique_ptr<c10::Event>>& events,
                             const Bucket& bucket, size_t index) {
    if (is_on_host(bucket, index)) return;
    for (const auto& event : events) event->block(stream_of(bucket, index));
  }

  void add_up(Bucket& bucket, size_t index) {
    const std::vector<at::Tensor>& sums = bucket.averages[index];
    at::_foreach_zero_(sums);
    for (const std::vector<at::Tensor>& given : bucket.given) {
      std::vector<at::Tensor> here;
      for (size_t i = 0; i < given.size(); ++i) {
        here.push_back(given[i].to(sums[i].device(), /*non_blocking=*/true));
      }
      at::_foreach_add_(sums, here, /*alpha=*/scale_);
    }
  }

  double scale_;
};

}  // namespace

std::shared_ptr<ExchangeGroup> make_stream_exchange(const TowerExchangeOptions& options) {
  return std::make_shared<StreamExchange>(options);
}

}  // namespace tensorpack
