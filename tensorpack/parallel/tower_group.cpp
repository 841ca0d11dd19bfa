// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/tower_group.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/spin_wait.h"

namespace tensorpack {
namespace {

constexpr uint32_t kAborted = 1U << 31;

void mark_aborted(std::atomic<uint32_t>& counter) {
  counter.fetch_or(kAborted);
  counter.notify_all();
}

// Throws when the group was aborted.
void wait_for(const std::atomic<uint32_t>& counter, uint32_t target) {
  for (;;) {
    const uint32_t count = counter.load(std::memory_order_acquire);
    TP_CHECK((count & kAborted) == 0, "exchange", "another tower has failed.");
    if (count == target) return;
    spin_wait(counter, count);
  }
}

}  // namespace

// One tower's part. It remembers the buckets, so that it looks each up once.
class TowerGroup::Member final : public Exchange {
 public:
  Member(TowerGroup& group, size_t index) : group_(group), index_(index) {}

  std::vector<at::Tensor> begin(int64_t key, at::TensorList tensors) override {
    Bucket& bucket = find(key, tensors);
    bucket.given[index_] = conform(bucket, tensors);
    if (bucket.averages[index_].empty()) {
      bucket.averages[index_] = group_.make_averages(bucket, index_);
    }
    group_.on_brought(bucket, index_);
    if (bucket.brought.fetch_add(1) + 1 == group_.towers()) {
      group_.on_all_here(bucket);
      bucket.is_ready.fetch_add(1);
      bucket.is_ready.notify_all();
    }
    return bucket.averages[index_];
  }

  void end(int64_t key, at::TensorList) override {
    Bucket& bucket = *buckets_[static_cast<size_t>(key)];
    wait_for(bucket.is_ready, 1);
    group_.deliver(bucket, index_);
    bucket.given[index_].clear();
  }

  bool is_capturable() const override { return group_.is_capturable(); }

 private:
  Bucket& find(int64_t key, at::TensorList tensors) {
    const auto place = static_cast<size_t>(key);
    if (place >= buckets_.size()) buckets_.resize(place + 1);
    if (buckets_[place] == nullptr) buckets_[place] = &group_.find_or_make_bucket(key, tensors);
    return *buckets_[place];
  }

  // The tensors in the layout of the bucket. Towers run the same program, so that copies are rare.
  static std::vector<at::Tensor> conform(const Bucket& bucket, at::TensorList tensors) {
    TP_ASSERT(tensors.size() == bucket.layouts.size());
    std::vector<at::Tensor> conforming;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Layout& layout = bucket.layouts[i];
      if (tensors[i].strides() == layout.strides) {
        conforming.push_back(tensors[i]);
        continue;
      }
      TP_CHECK(tensors[i].sizes() == layout.sizes, "exchange",
               "towers bring tensors of different shapes. Let every tower do the same.");
      conforming.push_back(
          at::empty_strided(layout.sizes, layout.strides, tensors[i].options()).copy_(tensors[i]));
    }
    return conforming;
  }

  TowerGroup& group_;
  size_t index_;
  std::vector<Bucket*> buckets_;  // by key
};

TowerGroup::TowerGroup(size_t towers) {
  for (size_t i = 0; i < towers; ++i) members_.push_back(std::make_unique<Member>(*this, i));
}

TowerGroup::~TowerGroup() = default;

Exchange& TowerGroup::member(size_t index) { return *members_[index]; }

void TowerGroup::start() {
  is_aborted_ = false;
  for (const auto& bucket : buckets_) {
    if (!bucket) continue;
    for (auto* counter : {&bucket->brought, &bucket->is_ready, &bucket->delivered}) *counter = 0;
  }
}

void TowerGroup::abort(size_t /*index*/) {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  for (const auto& bucket : buckets_) {
    if (!bucket) continue;
    mark_aborted(bucket->is_ready);
    mark_aborted(bucket->delivered);
  }
}

TowerGroup::Bucket& TowerGroup::find_or_make_bucket(int64_t key, at::TensorList tensors) {
  const std::lock_guard lock(mutex_);
  const auto place = static_cast<size_t>(key);
  if (place >= buckets_.size()) buckets_.resize(place + 1);
  if (buckets_[place]) return *buckets_[place];
  std::unique_ptr<Bucket> bucket = make_bucket();
  for (const at::Tensor& tensor : tensors) {
    // empty_like() keeps the strides of what is dense, and makes the others so.
    const at::Tensor dense = at::empty_like(tensor, at::TensorOptions(at::kMeta));
    bucket->layouts.push_back({dense.sizes().vec(), dense.strides().vec(), dense.numel()});
  }
  bucket->given.resize(towers());
  bucket->averages.resize(towers());
  if (is_aborted_) mark_aborted(bucket->is_ready);
  buckets_[place] = std::move(bucket);
  return *buckets_[place];
}

std::vector<at::Tensor> TowerGroup::make_averages(Bucket& bucket, size_t index) {
  // Programs run in inference mode, and a later run of the op may be eager.
  const c10::InferenceMode normal_tensors(false);
  std::vector<at::Tensor> averages;
  for (const at::Tensor& tensor : bucket.given[index]) averages.push_back(at::empty_like(tensor));
  return averages;
}

void TowerGroup::wait_for_delivery(Bucket& bucket) const {
  const auto all = static_cast<uint32_t>(towers());
  if (bucket.delivered.fetch_add(1) + 1 == all) bucket.delivered.notify_all();
  wait_for(bucket.delivered, all);
}

}  // namespace tensorpack
