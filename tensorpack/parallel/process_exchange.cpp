// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/process_exchange.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include <mutex>

#include "tensorpack/parallel/scaled_sum.h"
#include "tensorpack/parallel/tower_group.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/torch_compat.h"

namespace tensorpack {
namespace {

c10::ScalarType type_on_the_way(Compression compression, c10::ScalarType type) {
  switch (compression) {
    case Compression::kFloat16:
      return c10::kHalf;
    case Compression::kBFloat16:
      return c10::kBFloat16;
    default:
      return type;
  }
}

class ProcessExchange final : public TowerGroup {
 public:
  explicit ProcessExchange(const ProcessExchangeOptions& options)
      : TowerGroup(options.towers), options_(options) {
    const auto all = static_cast<double>(options.towers) * options.processes->size();
    if (options.average) scale_ = 1 / all;
  }

 protected:
  struct PackedBucket final : Bucket {
    at::Tensor packed;                 // what is added up over the processes
    std::vector<at::Tensor> unpacked;  // the tensors in it
    std::unique_ptr<ProcessGroup::Work> sum;
    std::mutex waiting;  // for the sum: one tower does it for all
  };

  std::unique_ptr<Bucket> make_bucket() const override { return std::make_unique<PackedBucket>(); }

  std::vector<at::Tensor> make_averages(Bucket& bucket, size_t index) override {
    // A tower by itself reads the sums where they are; of several, each may write to its own.
    const bool is_cast = options_.compression != Compression::kNone;
    if (towers() > 1 || is_cast) return TowerGroup::make_averages(bucket, index);
    make_memory(packed(bucket));
    return packed(bucket).unpacked;
  }

  void on_all_here(Bucket& bucket) override {
    PackedBucket& b = packed(bucket);
    make_memory(b);
    pack(b);
    b.sum = options_.processes->all_reduce(b.packed);
  }

  bool is_capturable() const override { return options_.processes->is_capturable(); }

  void deliver(Bucket& bucket, size_t index) override {
    PackedBucket& b = packed(bucket);
    {
      const std::lock_guard lock(b.waiting);
      if (b.sum) b.sum->wait();
      b.sum.reset();
    }
    const std::vector<at::Tensor>& averages = b.averages[index];
    if (averages[0].is_same(b.unpacked[0])) return;
    copy_together(averages, b.unpacked);
  }

 private:
  static PackedBucket& packed(Bucket& bucket) { return static_cast<PackedBucket&>(bucket); }

  void make_memory(PackedBucket& bucket) const {
    if (bucket.packed.defined()) return;
    // Programs run in inference mode, and a later run of the op may be eager.
    const c10::InferenceMode normal_tensors(false);
    int64_t total = 0;
    for (const Layout& layout : bucket.layouts) total += layout.elements;
    const at::TensorOptions options = bucket.given[0][0].options();
    bucket.packed =
        at::zeros({total}, options.dtype(type_on_the_way(
                               options_.compression, c10::typeMetaToScalarType(options.dtype()))));
    int64_t offset = 0;
    for (const Layout& layout : bucket.layouts) {
      bucket.unpacked.push_back(
          at::as_strided(bucket.packed, layout.sizes, layout.strides, offset));
      offset += layout.elements;
    }
  }

  void pack(PackedBucket& bucket) const {
    const bool is_plain =
        bucket.packed.is_cpu() && bucket.packed.scalar_type() == bucket.given[0][0].scalar_type();
    if (is_plain) return pack_on_cpu(bucket);
    std::vector<at::Tensor> sums = bucket.given[0];
    for (size_t tower = 1; tower < towers(); ++tower) {
      sums = at::_foreach_add(sums, bucket.given[tower]);
    }
    // Scaled before they are cast: half floats are soon too large.
    if (scale_ != 1) sums = at::_foreach_mul(sums, scale_);
    copy_together(bucket.unpacked, sums);
  }

  void pack_on_cpu(PackedBucket& bucket) const {
    for (size_t i = 0; i < bucket.unpacked.size(); ++i) {
      std::vector<const void*> inputs;
      for (const std::vector<at::Tensor>& given : bucket.given) {
        inputs.push_back(given[i].data_ptr());
      }
      scaled_sum(bucket.packed.scalar_type(), inputs, {bucket.unpacked[i].data_ptr()},
                 bucket.layouts[i].elements, scale_);
    }
  }

  ProcessExchangeOptions options_;
  double scale_ = 1;
};

}  // namespace

std::shared_ptr<ExchangeGroup> make_process_exchange(const ProcessExchangeOptions& options) {
  TP_ASSERT(options.processes != nullptr);
  return std::make_shared<ProcessExchange>(options);
}

}  // namespace tensorpack
